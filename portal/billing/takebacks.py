"""Refunds and disputes: money that goes back takes its credit with it, as a row of its own that a later row may take back again."""

from __future__ import annotations

from datetime import datetime

import structlog
from django.db import transaction
from django.db.models import Sum

from portal.billing import fresh, ledger, money, resumption
from portal.billing.models import CREDIT, DEBIT, Dispute, Entry, Invoice, SourceType, TopUp
from portal.billing.stripe_client import Stripe
from portal.billing.stripe_records import MoneyBack
from tenants.models import Tenant

log = structlog.get_logger(__name__)

NOT_REFUNDED = ("failed", "canceled")
ONLY_ASKED = ("warning_needs_response", "warning_under_review", "warning_closed", "prevented")  # no money has moved


def mirror_refund(stripe: Stripe, refund_id: str, now: datetime) -> None:
    fresh.write(refund_id, lambda: stripe.refund(refund_id), lambda found: _refund(found, now), now)


def mirror_dispute(stripe: Stripe, dispute_id: str, now: datetime) -> None:
    fresh.write(dispute_id, lambda: stripe.dispute(dispute_id), lambda found: _dispute(found, now), now)


def _refund(found: MoneyBack, now: datetime) -> None:
    payment = _bought_with(found)
    if payment is None:
        return
    tenant, credit, what = payment
    if found.status in NOT_REFUNDED:
        _give_back(tenant, SourceType.REFUND, found.id, "the refund did not go through", now)
    else:
        _take(tenant, SourceType.REFUND, found, credit, f"refund of {what}", now)


def _dispute(found: MoneyBack, now: datetime) -> None:
    payment = _bought_with(found)
    if payment is None:
        return
    tenant, credit, what = payment
    micros = money.from_minor(found.amount_minor, found.currency)
    values = {"tenant": tenant, "status": found.status, "micros": micros, "created_at": found.created_at}
    Dispute.objects.update_or_create(dispute_id=found.id, defaults=values)
    if found.status == "won":
        _give_back(tenant, SourceType.DISPUTE, found.id, "the dispute was decided in our favour", now)
        transaction.on_commit(lambda: resumption.resume_paid(tenant, now))
    elif found.status not in ONLY_ASKED:
        _take(tenant, SourceType.DISPUTE, found, credit, f"disputed: {what}", now)


def _bought_with(found: MoneyBack) -> tuple[Tenant, int, str] | None:
    """(tenant, credit that the payment brought, what it was for); None: no payment of ours."""
    if found.payment and (topup := TopUp.objects.select_related("tenant").filter(payment_id=found.payment).first()):
        return topup.tenant, topup.micros, f"the credit {topup.public_id}"
    if found.payment and (invoice := Invoice.objects.select_related("tenant").filter(payment_id=found.payment).first()):
        brought = Entry.objects.filter(tenant=invoice.tenant, source_type=SourceType.INVOICE, source=invoice.invoice_id, kind=CREDIT)
        return invoice.tenant, int(brought.aggregate(total=Sum("amount_micros"))["total"] or 0), f"invoice {invoice}"
    log.warning("money_back_of_unknown_payment", id=found.id, payment=found.payment)
    return None


def _take(tenant: Tenant, source_type: str, found: MoneyBack, credit: int, reason: str, now: datetime) -> None:
    """At most what the payment brought: a plan's fee brings no credit, so its refund takes none."""
    micros = min(money.from_minor(found.amount_minor, found.currency), credit)
    if micros:
        ledger.take_back(tenant, source_type, found.id, micros, reason, now)


def _give_back(tenant: Tenant, source_type: str, key: str, reason: str, now: datetime) -> None:
    entry = Entry.objects.filter(tenant=tenant, source_type=source_type, source=key, kind=DEBIT, reverses=None).first()
    if entry:
        ledger.reverse(entry, reason, ledger.PROVIDER, now)
