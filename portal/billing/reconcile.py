"""At night: do engine, ledger, outbox and Stripe say the same? What differs is a row for operators, and an alarm."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db.models import Sum

from portal.billing import invoices, late, ledger, subscriptions
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
    customers = list(StripeCustomer.objects.select_related("tenant").order_by("pk"))
    for customer in customers:
        for subscribed in stripe.subscriptions(customer.customer_id):
            subscriptions.mirror(stripe, subscribed.id, now)
    late.put_on_next(stripe, now - INVOICES_BACK, now)
    found: list[Discrepancy] = []
    for customer in customers:
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
    """The overage of an invoice, and what the next one asks for in its place, against the entries of its period."""
    invoiced = Invoice.objects.select_related("tenant").filter(tenant=tenant, created_at__gte=now - INVOICES_BACK, status__in=late.FINAL)
    found = [_note(tenant, f"overage on invoice {one}", late.overage(one), late.told(one), now) for one in invoiced]
    return [one for one in found if one]


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
    row: Discrepancy = Discrepancy.objects.update_or_create(what=what, defaults=values)[0]
    return row
