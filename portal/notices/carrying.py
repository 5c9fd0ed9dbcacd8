"""Deliveries on their way: each tried until it arrives, with growing pauses, for a day and a half; then given up and said so."""

from __future__ import annotations

import smtplib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import structlog
from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.mail import send_mail
from django.db.models import F
from django.template.loader import render_to_string

from engine.rewards.outbound import Outbound, Reply, Unreachable
from engine.sealed import CannotOpen
from portal.notices import webhooks
from portal.notices.models import Delivery

log = structlog.get_logger(__name__)

PAUSES = tuple(timedelta(seconds=seconds) for seconds in (5, 60, 300, 1800, 7200, 28800, 86400))
LEASE = timedelta(minutes=2)  # longer than a try; a dead carrier's runs out
SECONDS, MAX_ANSWER = 10.0, 64_000
AT_ONCE = 50

Post = Callable[[str, bytes, Mapping[str, str], str], Reply]


def post(url: str, body: bytes, headers: Mapping[str, str], owner: str) -> Reply:
    """One request to the public Internet and nowhere else. Raises ``Unreachable``."""
    return async_to_sync(_post)(url, body, headers, owner)


async def _post(url: str, body: bytes, headers: Mapping[str, str], owner: str) -> Reply:
    outbound = Outbound()
    try:
        return await outbound.post(url, body=body, headers=headers, seconds=SECONDS, max_bytes=MAX_ANSWER, owner=owner)
    finally:
        await outbound.close()


def sweep(now: datetime, *, post: Post = post) -> int:
    """Try what is due, the oldest first; how many were tried."""
    due = Delivery.objects.filter(next_try_at__lte=now).order_by("next_try_at").values_list("pk", flat=True)[:AT_ONCE]
    return sum(carry(pk, now, post=post) for pk in list(due))


def carry(pk: int, now: datetime, *, post: Post = post) -> bool:
    """One try, by whoever claims it first."""
    if not Delivery.objects.filter(pk=pk, next_try_at__lte=now).update(attempts=F("attempts") + 1, next_try_at=now + LEASE):
        return False
    delivery = Delivery.objects.select_related("notice__job", "webhook__tenant").get(pk=pk)
    status, error = _to_webhook(delivery, now, post) if delivery.webhook else (None, _to_mailbox(delivery))
    _settle(delivery, now, status, error)
    return True


def again(delivery: Delivery, now: datetime) -> None:
    """Somebody asks for it once more, whatever became of it."""
    Delivery.objects.filter(pk=delivery.pk).update(next_try_at=now, delivered_at=None, attempts=0, error="", status=None)


def _settle(delivery: Delivery, now: datetime, status: int | None, error: str) -> None:
    values: dict[str, object] = {"status": status, "error": error[:300], "next_try_at": None}
    if not error:
        values["delivered_at"] = now
    elif delivery.attempts <= len(PAUSES):
        values["next_try_at"] = now + PAUSES[delivery.attempts - 1]
    else:
        log.warning("notice_given_up", notice=delivery.notice.public_id, attempts=delivery.attempts, reason=error)
    Delivery.objects.filter(pk=delivery.pk).update(**values)


def _to_webhook(delivery: Delivery, now: datetime, post: Post) -> tuple[int | None, str]:
    webhook, notice = delivery.webhook, delivery.notice
    body = webhooks.message(notice)
    try:
        reply = post(webhook.url, body, webhooks.headers(webhook, notice, body, now), webhook.tenant.public_id)
    except (Unreachable, CannotOpen) as failure:
        return None, str(failure)
    return reply.status, "" if 200 <= reply.status < 300 else f"answered {reply.status}"


def _to_mailbox(delivery: Delivery) -> str:
    notice = delivery.notice
    text = render_to_string("mail/job_notice.txt", {"notice": notice, "job": notice.job})
    try:
        # The name that somebody chose stands in the text and never in the subject.
        send_mail(f"{settings.ACCOUNT_EMAIL_SUBJECT_PREFIX}A job has {notice.state}", text, None, [delivery.email])
    except (OSError, smtplib.SMTPException) as failure:
        return str(failure) or type(failure).__name__
    return ""
