"""Stripe's notices: stored, answered, and handled afterwards by fetching what they are about. They may come twice, late or never."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db.models import F

from portal.billing import invoices, subscriptions, takebacks, topups
from portal.billing.models import StripeEvent, StripeMark
from portal.billing.stripe_client import Stripe
from portal.billing.stripe_records import Notice, Refused, Unreachable

log = structlog.get_logger(__name__)

LEASE = timedelta(minutes=2)
OVERLAP = timedelta(days=1)  # a backfill looks so far behind the last one: Stripe itself may be late
REACHES = timedelta(days=30)  # as far as Stripe lists events
BACKFILL = "backfill"


def store(notice: Notice, now: datetime, found: str = StripeEvent.Found.WEBHOOK) -> StripeEvent | None:
    """The row of a notice that is new and means something to us; None for any other."""
    if not notice.object_id or _handler(notice.kind) is None:
        return None
    values = {"kind": notice.kind, "object_id": notice.object_id, "created_at": notice.created_at, "received_at": now, "found": found}
    row, made = StripeEvent.objects.get_or_create(event_id=notice.id, defaults=values)
    return row if made else None


def sweep(stripe: Stripe, now: datetime, *, seconds: float = 60.0, monotonic: Callable[[], float] = time.monotonic) -> int:
    """Handle what is due, in the order in which it happened; how many were."""
    ends, handled = monotonic() + seconds, 0
    while monotonic() < ends and (event := _due(now).first()):
        handled += handle(stripe, event, now)
    return handled


def handle(stripe: Stripe, event: StripeEvent, now: datetime) -> bool:
    """One notice, by whoever claims it first; whether it is done."""
    standing = StripeEvent.objects.filter(pk=event.pk, handled_at=None, attempts=event.attempts)
    if not standing.update(attempts=F("attempts") + 1, next_try_at=now + LEASE):
        return False
    try:
        handler = _handler(event.kind)
        if handler is not None:
            handler(stripe, event, now)
    except Unreachable as error:
        seconds = min(3600.0, 4.0 * 2 ** min(event.attempts, 12)) * (0.5 + random.random())
        return _postpone(event, now, max(seconds, error.retry_after_seconds or 0.0), str(error))
    except Refused as error:
        log.error("notice_not_handled", notice=event.event_id, kind=event.kind, reason=str(error))
        return _postpone(event, now, 3600.0, str(error))
    StripeEvent.objects.filter(pk=event.pk).update(handled_at=now, next_try_at=None, error="")
    return True


def backfill(stripe: Stripe, now: datetime) -> int:
    """Store what Stripe says happened and never told us; how many were missing."""
    mark, _ = StripeMark.objects.get_or_create(object_id=BACKFILL)
    since = max(now - REACHES, mark.at - OVERLAP) if mark.at else now - REACHES
    missed = [row for notice in stripe.notices(since) if (row := store(notice, now, str(StripeEvent.Found.BACKFILL)))]
    if missed and mark.at:
        log.error("notices_were_missed", count=len(missed), oldest=str(missed[0]), since=missed[0].created_at.isoformat())
    StripeMark.objects.filter(pk=mark.pk).update(at=now)
    return len(missed)


def _due(now: datetime) -> Any:
    waiting = StripeEvent.objects.filter(handled_at=None)
    return (waiting.filter(next_try_at=None) | waiting.filter(next_try_at__lte=now)).order_by("created_at", "id")


def _postpone(event: StripeEvent, now: datetime, seconds: float, reason: str) -> bool:
    StripeEvent.objects.filter(pk=event.pk).update(next_try_at=now + timedelta(seconds=seconds), error=reason[:500])
    return False


def _session(stripe: Stripe, event: StripeEvent, now: datetime) -> None:
    session = topups.mirror(stripe, event.object_id, now, failed=event.kind.endswith("async_payment_failed"))
    if session.subscription:
        subscriptions.mirror(stripe, session.subscription, now)


_HANDLERS: dict[str, Callable[[Stripe, StripeEvent, datetime], None]] = {
    "checkout.session.": _session,
    "customer.subscription.": lambda stripe, event, now: subscriptions.mirror(stripe, event.object_id, now),
    "invoice.": lambda stripe, event, now: invoices.mirror(stripe, event.object_id, now),
    "refund.": lambda stripe, event, now: takebacks.mirror_refund(stripe, event.object_id, now),
    "charge.dispute.": lambda stripe, event, now: takebacks.mirror_dispute(stripe, event.object_id, now),
}
_UNINTERESTING = ("invoice.upcoming", "invoice.deleted")


def _handler(kind: str) -> Callable[[Stripe, StripeEvent, datetime], None] | None:
    if kind in _UNINTERESTING:
        return None
    return next((handler for prefix, handler in _HANDLERS.items() if kind.startswith(prefix)), None)
