"""API tokens: ``mrl_<id>_<secret><checksum>``. Own code, since django-rest-knox has no scopes, no checksum and no tenant.

The prefix lets secret scanners find a leaked token, the checksum lets them (and us) discard a mistyped one without a query, the id
finds the row, and the secret is compared with a hash keyed by the site's own key: a stolen table opens nothing.
"""

from __future__ import annotations

import base64
import re
import secrets
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q
from django.utils.crypto import constant_time_compare, salted_hmac

from tenants.models import ApiToken, Role, Tenant, User

PREFIX = "mrl"
SCOPES = ("datasets:read", "datasets:write", "rewards:read", "rewards:write", "jobs:read", "jobs:write", "models:read", "billing:read")
DEFAULT_LIFE = timedelta(days=90)
USE_RECORDED_EVERY = timedelta(minutes=1)
_FORM = re.compile(r"^mrl_([a-z2-7]{12})_([a-z2-7]{32})([a-z2-7]{7})$")


class BadToken(Exception):
    """A token that opens nothing. ``code``: malformed | unknown | expired | revoked | no_member."""

    def __init__(self, code: str, message: str):
        self.code = code
        super().__init__(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """What a valid token grants."""

    token: ApiToken
    user: User
    tenant: Tenant
    role: str
    scopes: frozenset[str]


def issue(tenant: Tenant, user: User, name: str, now: datetime, *, scopes: tuple[str, ...] = SCOPES, life: timedelta = DEFAULT_LIFE):
    """A new token as (row, text). The text is shown once and never stored."""
    token_id, secret = _random(12), _random(32)
    token = ApiToken.objects.create(
        tenant=tenant,
        user=user,
        name=name,
        token_id=token_id,
        secret_hash=_hash(secret, settings.SECRET_KEY),
        scopes=sorted(scopes),
        created_at=now,
        expires_at=now + life,
    )
    return token, f"{PREFIX}_{token_id}_{secret}{_checksum(token_id, secret)}"


def check(text: str, now: datetime) -> Access:
    """What ``text`` grants now; raises ``BadToken``. The role is today's, not the one of the day it was issued."""
    token_id, secret = _parse(text)
    token = ApiToken.objects.select_related("tenant", "user").filter(token_id=token_id).first()
    if token is None or not _matches(secret, token.secret_hash):
        raise BadToken("unknown", "This API token is not known. Create one under Settings, API tokens.")
    if token.revoked_at is not None:
        raise BadToken("revoked", "This API token was revoked. Create a new one under Settings, API tokens.")
    if now >= token.expires_at:
        raise BadToken("expired", f"This API token expired on {token.expires_at:%Y-%m-%d}. Create a new one under Settings, API tokens.")
    membership = token.tenant.memberships.filter(user=token.user, user__is_active=True).first()
    if membership is None:
        raise BadToken("no_member", "The person who created this API token no longer belongs to its organisation.")
    _record_use(token, now)
    return Access(token=token, user=token.user, tenant=token.tenant, role=membership.role, scopes=_effective(token.scopes, membership.role))


def revoke(token: ApiToken, now: datetime) -> bool:
    """Whether this call revoked it. Holds from the next request on."""
    return bool(ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now))


def _effective(scopes: list[str], role: str) -> frozenset[str]:
    granted = frozenset(scopes) & frozenset(SCOPES)
    return frozenset(s for s in granted if not s.endswith(":write")) if role == Role.VIEWER else granted


def _parse(text: str) -> tuple[str, str]:
    found = _FORM.match(text)
    if not found:
        raise BadToken("malformed", "This is not an API token: one begins with mrl_ and has 56 characters.")
    token_id, secret, checksum = found.groups()
    if checksum != _checksum(token_id, secret):
        raise BadToken("malformed", "This API token was mistyped or cut: its checksum does not fit.")
    return token_id, secret


def _record_use(token: ApiToken, now: datetime) -> None:
    """At most one write a minute: a busy client must not turn every read into a write."""
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - USE_RECORDED_EVERY)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)


def _random(length: int) -> str:
    return base64.b32encode(secrets.token_bytes(length)).decode().lower()[:length]


def _checksum(token_id: str, secret: str) -> str:
    crc = zlib.crc32(f"{token_id}_{secret}".encode()).to_bytes(4, "big")
    return base64.b32encode(crc).decode().lower().rstrip("=")


def _hash(secret: str, key: str) -> str:
    return salted_hmac("tenants.tokens", secret, secret=key, algorithm="sha256").hexdigest()


def _matches(secret: str, wanted: str) -> bool:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return any(constant_time_compare(_hash(secret, key), wanted) for key in keys)
