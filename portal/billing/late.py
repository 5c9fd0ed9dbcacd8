"""Overage that Stripe got after it had closed the invoice of its period: it is asked for on the next invoice, as a line of its own.

What was used in a period is known when its hours are over, so the sum that an invoice lacks is fixed as soon as the invoice is final: it is
stored first and asked for afterwards. Who has no subscription any more gets no next invoice; that stays a discrepancy for operators.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db.models import Sum
from django.utils.dateparse import parse_datetime

from portal.billing import catalogue, subscriptions
from portal.billing.models import Entry, Invoice, LateUsage
from portal.billing.stripe_client import Stripe
from portal.billing.stripe_customers import customer_of
from tenants.models import Tenant

log = structlog.get_logger(__name__)

FINAL = ("open", "paid", "uncollectible")


def put_on_next(stripe: Stripe, since: datetime, now: datetime) -> int:
    """Ask for what the invoices since then lack; how many lines were added. Raises ``Unreachable``, ``Refused``."""
    closed = Invoice.objects.select_related("tenant").filter(created_at__gte=since, status__in=FINAL, late_usage=None)
    for invoice in closed.order_by("pk"):
        missing = overage(invoice) - told(invoice)
        if missing > 0 and subscriptions.live(invoice.tenant) is not None:
            values = {"tenant": invoice.tenant, "micros": missing, "created_at": now}
            LateUsage.objects.get_or_create(invoice=invoice, defaults=values)
    waiting = list(LateUsage.objects.select_related("tenant", "invoice").filter(item_id="").order_by("pk"))
    for late in waiting:
        LateUsage.objects.filter(pk=late.pk, item_id="").update(item_id=_ask_for(stripe, late, now))
        log.warning("late_usage_on_next_invoice", invoice=late.invoice.invoice_id, micros=late.micros)
    return len(waiting)


def overage(invoice: Invoice) -> int:
    """What the ledger says of the periods of the invoice's overage lines, in micro-units."""
    return sum(_used(invoice.tenant, *_period(line)) for line in _lines(invoice))


def told(invoice: Invoice) -> int:
    """What the invoice asked for, and what is asked for later in its place, in micro-units."""
    later = LateUsage.objects.filter(invoice=invoice).exclude(item_id="").aggregate(total=Sum("micros"))["total"]
    return sum(int(line["quantity"]) for line in _lines(invoice)) + int(later or 0)


def _lines(invoice: Invoice) -> list[dict[str, Any]]:
    return [line for line in invoice.lines if line["overage"]]


def _period(line: dict[str, Any]) -> tuple[datetime, datetime]:
    start, end = parse_datetime(line["start"]), parse_datetime(line["end"])
    if start is None or end is None:
        raise ValueError(f"a line from {line['start']} to {line['end']}")
    return start, end


def _used(tenant: Tenant, start: datetime, end: datetime) -> int:
    entries = Entry.objects.filter(tenant=tenant, told_hour__gte=start, told_hour__lt=end)
    return int(entries.aggregate(total=Sum("overage_micros"))["total"] or 0)


def _ask_for(stripe: Stripe, late: LateUsage, now: datetime) -> str:
    periods = [_period(line) for line in _lines(late.invoice)]
    start, end = min(first for first, _ in periods), max(last for _, last in periods)
    days = f"{start:%Y-%m-%d} to {end - timedelta(seconds=1):%Y-%m-%d}"
    return stripe.add_late(
        customer=customer_of(stripe, late.tenant, now),
        invoice=late.invoice.invoice_id,
        micros=late.micros,
        unit_minor=catalogue.micro_unit_minor(late.invoice.currency),
        currency=late.invoice.currency,
        words=f"Usage beyond credit, {days}, told after invoice {late.invoice} was closed",
        period=(start, end),
        now=now,
    )
