"""Stripe's invoices, mirrored. One that is paid brings credit: the overage that it asked for, and what the plan includes."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import structlog
from django.db import transaction

from portal.billing import fresh, ledger, resumption
from portal.billing.models import Invoice, Plan, SourceType
from portal.billing.stripe_client import Stripe
from portal.billing.stripe_customers import tenant_of
from portal.billing.stripe_records import Billed, InvoiceLine
from tenants.models import Tenant

log = structlog.get_logger(__name__)

OVERAGE_PART, INCLUDED_PART = 0, 1  # of an invoice's credit, in the ledger's key


def mirror(stripe: Stripe, invoice_id: str, now: datetime) -> None:
    overage_price = stripe.catalogue().overage_price
    fresh.write(invoice_id, lambda: stripe.invoice(invoice_id), lambda found: _apply(found, overage_price, now), now)


def _apply(found: Billed, overage_price: str, now: datetime) -> None:
    tenant = tenant_of(found.customer)
    if tenant is None:
        log.warning("invoice_of_unknown_customer", invoice=found.id)
        return
    before = Invoice.objects.filter(invoice_id=found.id).first()
    failed_at = (before.failed_at if before else None) or (now if found.failed else None)
    values = {
        "tenant": tenant,
        "number": found.number,
        "status": found.status,
        "currency": found.currency,
        "total_minor": found.total_minor,
        "paid_minor": found.paid_minor,
        "lines": [_stored(line, overage_price) for line in found.lines],
        "page_url": found.page_url[:500],
        "pdf_url": found.pdf_url[:500],
        "payment_id": found.payment or (before.payment_id if before else ""),
        "created_at": found.created_at,
        "failed_at": failed_at,
    }
    Invoice.objects.update_or_create(invoice_id=found.id, defaults=values)
    if found.status == "paid":
        _credit(tenant, found, overage_price, now)
        transaction.on_commit(lambda: resumption.resume_paid(tenant, now))


def _credit(tenant: Tenant, found: Billed, overage_price: str, now: datetime) -> None:
    """The overage's credit is its micro-units, not the rounded amount: the ledger stays exact, the invoice is rounded once a line."""
    overage = sum(line.quantity for line in found.lines if line.price == overage_price or line.late_of)
    fees = [line.price for line in found.lines if line.price and line.price != overage_price and not line.late_of and not line.proration]
    included = sum(plan.included_micros for plan in Plan.objects.filter(stripe_price__in=fees))
    name = found.number or found.id
    if overage:
        reason = f"usage beyond credit, paid with invoice {name}"
        ledger.receive(tenant, SourceType.INVOICE, found.id, overage, reason, now, part=OVERAGE_PART)
    if included:
        reason = f"included in the plan, paid with invoice {name}"
        ledger.receive(tenant, SourceType.INVOICE, found.id, included, reason, now, part=INCLUDED_PART)


def _stored(line: InvoiceLine, overage_price: str) -> dict[str, Any]:
    values = asdict(line)
    return {**values, "start": line.start.isoformat(), "end": line.end.isoformat(), "overage": line.price == overage_price}
