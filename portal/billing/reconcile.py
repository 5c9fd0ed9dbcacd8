"""At night: do engine, ledger, outbox and Stripe say the same? What differs is a row for operators, and an alarm."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db.models import Sum
from django.utils.dateparse import parse_datetime

from portal.billing import invoices, ledger, subscriptions
from portal.billing.models import Account, Discrepancy, Entry, Invoice, MeterEvent, StripeCustomer
from portal.billing.outbox import METERS, OVERAGE, hour_of
from portal.billing.stripe_client import Stripe
from tenants.models import Tenant

log = structlog.get_logger(__name__)

BACK = timedelta(days=3)  # compared anew each night
SETTLED = timedelta(hours=2)  # Stripe adds events up some time after it took them
INVOICES_BACK = timedelta(days=40)


def compare(stripe: Stripe, now: datetime) -> list[Discrepancy]:
    """What differs. First the mirrored objects are brought up to date. Raises ``Unreachable``, ``Refused``."""
    start, end = hour_of(now - BACK), hour_of(now - SETTLED)
    for invoice_id in stripe.invoices(now - BACK):
        invoices.mirror(stripe, invoice_id, now)
    found: list[Discrepancy] = []
    for customer in StripeCustomer.objects.select_related("tenant").order_by("pk"):
        for subscribed in stripe.subscriptions(customer.customer_id):
            subscriptions.mirror(stripe, subscribed.id, now)
        found += _usage(stripe, customer, start, end, now)
        found += _ledger(customer.tenant, start, end, now)
        found += _invoiced(customer.tenant, now)
    found += [one for account in Account.objects.select_related("tenant") if (one := _balance(account.tenant, now))]
    log.info("reconciled", discrepancies=len(found))
    return found


def _usage(stripe: Stripe, customer: StripeCustomer, start: datetime, end: datetime, now: datetime) -> list[Discrepancy]:
    """What was sent, hour by hour, against Stripe's own sums."""
    rows = MeterEvent.objects.filter(tenant=customer.tenant, hour__gte=start, hour__lt=end)
    ours: dict[str, Counter[datetime]] = {meter: Counter() for meter in (*METERS.values(), OVERAGE)}
    for row in rows.exclude(sent_at=None):
        ours[row.meter][row.hour] += row.quantity
    unsure = set(rows.filter(sent_at=None).values_list("meter", "hour"))
    found = []
    for meter, hours in ours.items():
        theirs = stripe.used(meter=meter, customer=customer.customer_id, start=start, end=end)
        for hour in hours.keys() | theirs.keys():
            if (meter, hour) not in unsure:
                what = f"{meter} of {customer.tenant.public_id} at {hour:%Y-%m-%d %H}:00"
                found.append(_note(customer.tenant, what, hours[hour], theirs.get(hour, 0), now))
    return [one for one in found if one]


def _ledger(tenant: Tenant, start: datetime, end: datetime, now: datetime) -> list[Discrepancy]:
    """The ledger's entries against the outbox, hour by hour."""
    entries = Entry.objects.filter(tenant=tenant, told_hour__gte=start, told_hour__lt=end).order_by()
    wanted: Counter[tuple[str, datetime]] = Counter()
    for kind, hour, quantity, overage in entries.values_list("kind", "told_hour").annotate(Sum("quantity"), Sum("overage_micros")):
        wanted[METERS[kind], hour] += quantity
        wanted[OVERAGE, hour] += overage
    told = MeterEvent.objects.filter(tenant=tenant, hour__gte=start, hour__lt=end)
    outbox = {(meter, hour): quantity for meter, hour, quantity in told.values_list("meter", "hour", "quantity")}
    found = [
        _note(tenant, f"outbox {key[0]} of {tenant.public_id} at {key[1]:%Y-%m-%d %H}:00", wanted[key], outbox.get(key, 0), now)
        for key in (+wanted).keys() | outbox.keys()
    ]
    return [one for one in found if one]


def _invoiced(tenant: Tenant, now: datetime) -> list[Discrepancy]:
    """The overage of an invoice against the entries of its period: usage that Stripe got after it closed the invoice is on none."""
    found = []
    for invoice in Invoice.objects.filter(tenant=tenant, created_at__gte=now - INVOICES_BACK).exclude(status__in=("draft", "void")):
        for line in invoice.lines:
            if line["overage"]:
                found.append(_note(tenant, f"overage on invoice {invoice}", _overage(tenant, line), line["quantity"], now))
    return [one for one in found if one]


def _overage(tenant: Tenant, line: dict[str, Any]) -> int:
    start, end = parse_datetime(line["start"]), parse_datetime(line["end"])
    entries = Entry.objects.filter(tenant=tenant, told_hour__gte=start, told_hour__lt=end)
    return int(entries.aggregate(total=Sum("overage_micros"))["total"] or 0)


def _balance(tenant: Tenant, now: datetime) -> Discrepancy | None:
    audit = ledger.audit(tenant)
    return _note(tenant, f"balance of {tenant.public_id}", "sound" if audit.sound else audit, "sound", now)


def _note(tenant: Tenant, what: str, ours: Any, theirs: Any, now: datetime) -> Discrepancy | None:
    """A row while both differ; none any more when they agree."""
    if ours == theirs:
        Discrepancy.objects.filter(what=what).delete()
        return None
    log.error("stripe_and_we_differ", what=what, ours=ours, theirs=theirs)
    values = {"tenant": tenant, "ours": str(ours)[:200], "theirs": str(theirs)[:200], "found_at": now}
    return Discrepancy.objects.update_or_create(what=what, defaults=values)[0]
