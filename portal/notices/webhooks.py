"""A webhook's message and its signature, in the form of Standard Webhooks, so that people's existing libraries verify it.

``webhook-signature: v1,<base64 of HMAC-SHA256(secret, "id.timestamp.body")>``; a receiver refuses what is older than five minutes.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.conf import settings

from engine.rewards.addresses import url_problem
from engine.sealed import Sealer
from portal.errors import Invalid
from portal.notices.models import Notice, Webhook
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User

PREFIX = "whsec_"
MOST_WEBHOOKS, MOST_CHARACTERS = 10, 500


def create_webhook(tenant: Tenant, user: User, url: str) -> tuple[Webhook, str]:
    """(the webhook, its secret, which nobody sees again). Raises ``Invalid``, ``Forbidden``."""
    require(tenant, user, Role.ADMIN)
    url = url.strip()
    if fault := url_problem(url):
        raise Invalid([("url", fault)])
    if len(url) > MOST_CHARACTERS:
        raise Invalid([("url", f"has {len(url):,} characters; an address may have {MOST_CHARACTERS}")])
    if tenant.webhooks.filter(url=url).exists():
        raise Invalid([("url", "is told already; remove that webhook first for a new secret")])
    if tenant.webhooks.count() >= MOST_WEBHOOKS:
        raise Invalid([("url", f"there are {MOST_WEBHOOKS} webhooks already; remove one first")])
    secret = PREFIX + base64.b64encode(secrets.token_bytes(24)).decode()
    webhook = Webhook.objects.create(tenant=tenant, url=url, secret=_sealer().seal(secret, tenant=tenant.public_id), created_by=user)
    audit.record(tenant, user, "webhook.created", webhook, name=url)
    return webhook, secret


def remove_webhook(tenant: Tenant, user: User, webhook: Webhook) -> None:
    require(tenant, user, Role.ADMIN)
    audit.record(tenant, user, "webhook.removed", webhook, name=webhook.url)
    webhook.delete()


def message(notice: Notice) -> bytes:
    """The body; the same for every try."""
    job = notice.job
    data: dict[str, Any] = {"id": job.public_id, "name": job.name, "state": notice.state, "reason": notice.reason}
    body = {"id": notice.public_id, "type": notice.kind, "created_at": notice.at.isoformat(), "data": {**data, "version": job.version}}
    return json.dumps(body, ensure_ascii=False).encode()


def headers(webhook: Webhook, notice: Notice, body: bytes, now: datetime) -> dict[str, str]:
    secret = _sealer().open(webhook.secret, tenant=webhook.tenant.public_id)
    stamp = str(int(now.timestamp()))
    signed = signature(secret, notice.public_id, stamp, body)
    return {"webhook-id": notice.public_id, "webhook-timestamp": stamp, "webhook-signature": signed}


def signature(secret: str, identity: str, stamp: str, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return "v1," + base64.b64encode(hmac.new(key, f"{identity}.{stamp}.".encode() + body, sha256).digest()).decode()


def _sealer() -> Sealer:
    return Sealer(bearer=settings.ENGINE_SECRET, earlier=tuple(settings.ENGINE_SECRET_FALLBACKS))
