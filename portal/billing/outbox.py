"""What Stripe is told of usage. Written with the ledger, in its transaction; sent later, by whoever, as often as it takes.

One event per tenant, meter and hour. Its hour is the one of the writing, so an hour that is over grows no more; and it is sealed before
it is sent, so what is sent twice is the same twice. The account's lock is held by whoever adds or seals.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Min
from django.db.models.functions import Coalesce

from portal.billing.models import Account, Entry, Kind, MeterEvent
from portal.billing.stripe_client import Stripe
from portal.billing.stripe_customers import customer_of
from portal.billing.stripe_records import Refused, Unreachable

log = structlog.get_logger(__name__)

METERS = {kind: f"marlaas_{kind}" for kind in Kind.values}
OVERAGE = "marlaas_overage"
HOUR = timedelta(hours=1)
KNOWN_FOR = timedelta(hours=23)  # Stripe knows an identifier for at least 24 hours; one is left for clocks that differ
OLDEST = timedelta(days=34)  # Stripe takes an event up to 35 days after its moment
LEASE = timedelta(minutes=2)  # longer than a call may take: whoever claims an event sends it alone meanwhile
ALARM_AGE = timedelta(hours=6)
FAILURES_IN_A_ROW = 3
_LONGEST_PAUSE_SECONDS = 3600.0


class Uncertain(Exception):
    """It may have been counted already, in part: a person has to look."""


def hour_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def tell(account: Account, entries: Sequence[Entry], now: datetime) -> None:
    """Mark the entries that Stripe is told of and add them to the hour. The account is locked and as before these entries.

    Told is what has a price. Corrections are credit, not usage below 0: Stripe counts what was used.
    """
    used = [entry for entry in entries if entry.kind in METERS and entry.reverses_id is None and entry.price_micros]
    if not settings.STRIPE_KEY or not used:
        return
    _split(account, used)
    hour = _open_hour(account, now)
    sums: Counter[str] = Counter()
    for entry in used:
        entry.told_hour = hour
        sums[METERS[entry.kind]] += entry.quantity
        sums[OVERAGE] += entry.overage_micros
    _grow(account, hour, +sums)


def seal(now: datetime) -> int:
    """Close the hours that are over; how many events became final."""
    over = MeterEvent.objects.filter(sealed_at=None, hour__lt=hour_of(now))
    sealed = 0
    for tenant in over.order_by("tenant").values_list("tenant", flat=True).distinct():
        with transaction.atomic():
            Account.objects.select_for_update(no_key=True).get(tenant=tenant)
            sealed += over.filter(tenant=tenant).update(sealed_at=now)
    return sealed


def send(
    stripe: Stripe,
    now: datetime,
    *,
    seconds: float = 60.0,
    monotonic: Callable[[], float] = time.monotonic,
    chance: Callable[[], float] = random.random,
) -> int:
    """Send what is due, the oldest first, until ``seconds`` have passed or Stripe is plainly away; how many were sent."""
    ends, sent, failures = monotonic() + seconds, 0, 0
    while monotonic() < ends and failures < FAILURES_IN_A_ROW:
        event = _due(now).select_related("tenant").first()
        if event is None:
            break
        if not _claim(event, now):
            continue
        try:
            _deliver(stripe, event, now)
        except Unreachable as error:
            failures += 1
            _postpone(event, now, _pause(event.attempts, chance(), error.retry_after_seconds), str(error))
        except (Refused, Uncertain) as error:
            log.error("usage_not_taken", identifier=event.identifier, reason=str(error))
            _postpone(event, now, _LONGEST_PAUSE_SECONDS, str(error))
        else:
            failures = 0
            sent += _mark(event, now)
    return sent


def oldest(now: datetime) -> timedelta:
    """How long the oldest event that is due has been waiting."""
    first = MeterEvent.objects.filter(sent_at=None, sealed_at__isnull=False).aggregate(first=Min("sealed_at"))["first"]
    return now - first if first else timedelta(0)


def alarm(now: datetime) -> timedelta:
    """Tell the operator when usage waits for too long; how long it does."""
    if (age := oldest(now)) > ALARM_AGE:
        log.error("usage_waits_for_stripe", hours=round(age / HOUR, 1), events=MeterEvent.objects.filter(sent_at=None).count())
    return age


def _split(account: Account, used: Sequence[Entry]) -> None:
    """What of each amount no credit covers is its overage: of subscribers, the next invoice asks for it."""
    if not account.credit_line_micros:
        return
    balance = account.balance_micros
    for entry in used:
        short, balance = max(0, -balance), balance + entry.amount_micros
        entry.overage_micros = max(0, -balance) - short


def _open_hour(account: Account, now: datetime) -> datetime:
    """This hour, or the first one after those that are sealed: a clock may have been put back."""
    sealed = MeterEvent.objects.filter(tenant=account.tenant_id, sealed_at__isnull=False).order_by("-hour")
    last = sealed.values_list("hour", flat=True).first()
    return max(hour_of(now), last + HOUR) if last else hour_of(now)


def _grow(account: Account, hour: datetime, sums: Counter[str]) -> None:
    rows = {row.meter: row for row in MeterEvent.objects.filter(tenant=account.tenant_id, hour=hour)}
    for meter, quantity in sums.items():
        if meter in rows:
            MeterEvent.objects.filter(pk=rows[meter].pk).update(quantity=F("quantity") + quantity)
    fresh = [MeterEvent(tenant_id=account.tenant_id, meter=m, hour=hour, quantity=q) for m, q in sums.items() if m not in rows]
    MeterEvent.objects.bulk_create(fresh)


def _due(now: datetime) -> Any:
    waiting = MeterEvent.objects.filter(sent_at=None, sealed_at__isnull=False)
    return (waiting.filter(next_try_at=None) | waiting.filter(next_try_at__lte=now)).order_by("hour", "id")


def _claim(event: MeterEvent, now: datetime) -> bool:
    """This caller's for a while, by compare-and-set. The first attempt is on disk before Stripe hears of it."""
    standing = MeterEvent.objects.filter(pk=event.pk, sent_at=None, attempts=event.attempts)
    return bool(standing.update(attempts=F("attempts") + 1, tried_at=Coalesce(F("tried_at"), now), next_try_at=now + LEASE))


def _deliver(stripe: Stripe, event: MeterEvent, now: datetime) -> None:
    """Returns when Stripe has it, from this attempt or an earlier one."""
    customer = customer_of(stripe, event.tenant, now)
    if event.tried_at is not None and now - event.tried_at > KNOWN_FOR and _counted(stripe, event, customer):
        return
    if now - event.hour > OLDEST:
        raise Uncertain(f"{event.quantity} of {event.meter} are older than Stripe takes; put them on an invoice by hand")
    stripe.send_usage(meter=event.meter, customer=customer, quantity=event.quantity, at=event.hour, identifier=event.identifier)


def _counted(stripe: Stripe, event: MeterEvent, customer: str) -> bool:
    """Whether an earlier attempt got through: its identifier protects no more, so Stripe's own sum of that hour is asked."""
    there = stripe.used_in_hour(meter=event.meter, customer=customer, hour=event.hour)
    if there not in (0, event.quantity):
        raise Uncertain(f"Stripe has {there} of {event.meter} for {event.hour:%Y-%m-%d %H}:00, {event.quantity} were to be sent")
    return bool(there == event.quantity)


def _postpone(event: MeterEvent, now: datetime, seconds: float, reason: str) -> None:
    MeterEvent.objects.filter(pk=event.pk, sent_at=None).update(next_try_at=now + timedelta(seconds=seconds), error=reason[:500])


def _pause(attempts: int, chance: float, told_seconds: float | None) -> float:
    """Doubling from a few seconds to an hour, spread by half to either side; never shorter than Stripe asks for."""
    seconds = min(_LONGEST_PAUSE_SECONDS, 4.0 * float(2 ** min(attempts, 12))) * (0.5 + chance)
    return max(seconds, told_seconds or 0.0)


def _mark(event: MeterEvent, now: datetime) -> int:
    return int(MeterEvent.objects.filter(pk=event.pk, sent_at=None).update(sent_at=now, next_try_at=None, error=""))
