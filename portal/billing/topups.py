"""Prepaid credit, bought at Checkout. Whoever comes back from there has not paid by coming back: the credit follows Stripe's word."""

from __future__ import annotations

from datetime import datetime

import structlog
from django.conf import settings
from django.db import transaction

from portal.billing import fresh, ledger, money, resumption
from portal.billing.models import SourceType, TopUp
from portal.billing.stripe_client import Stripe
from portal.billing.stripe_customers import customer_of
from portal.billing.stripe_records import Refused, Session, Unreachable
from portal.errors import Conflict, Invalid
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User

log = structlog.get_logger(__name__)

LEAST, MOST = 1_000_000, 100_000_000_000  # in micro-units: 1 and 100,000 of the currency


class NotNow(Conflict):
    """Stripe cannot be used at the moment, or not at all."""

    code = "payment_unavailable"


def buy(stripe: Stripe | None, tenant: Tenant, user: User, micros: int, back: str, now: datetime) -> str:
    """The address of a Checkout for ``micros`` of credit; nothing is credited yet. Raises ``Forbidden``, ``Invalid``, ``NotNow``."""
    require(tenant, user, Role.ADMIN)
    if stripe is None:
        raise NotNow([("credit", "credit cannot be bought on this installation; ask your operator for some")])
    try:
        amount = money.to_minor(micros, settings.CURRENCY)
    except ValueError as error:
        raise Invalid([("amount", str(error))]) from None
    if not LEAST <= micros <= MOST:
        raise Invalid([("amount", f"must lie between {money.shown(LEAST)} and {money.shown(MOST)}")])
    with transaction.atomic():
        topup = TopUp.objects.create(tenant=tenant, micros=micros, currency=settings.CURRENCY, bought_by=user, created_at=now)
        audit.record(tenant, user, "billing.credit", topup, name=money.shown(micros))
    try:
        session = stripe.sell_credit(
            customer=customer_of(stripe, tenant, now),
            reference=topup.public_id,
            amount_minor=amount,
            currency=topup.currency,
            words=f"Credit of {money.shown(micros)}",
            back=back,
            now=now,
        )
    except (Unreachable, Refused) as error:
        log.warning("checkout_not_opened", topup=topup.public_id, reason=str(error))
        TopUp.objects.filter(pk=topup.pk, state=TopUp.State.OPEN).update(state=TopUp.State.FAILED, ended_at=now)
        raise NotNow([("credit", "Stripe does not answer, and nothing was charged; try again in a minute")]) from None
    TopUp.objects.filter(pk=topup.pk).update(session_id=session.id)
    return session.url


def mirror(stripe: Stripe, session_id: str, now: datetime, *, failed: bool = False) -> Session:
    """Write a session down as it stands. ``failed``: a payment that was to settle later did not."""
    found: list[Session] = []

    def fetch() -> Session:
        found[:] = [stripe.session(session_id)]
        return found[0]

    fresh.write(session_id, fetch, lambda session: _apply(session, failed, now), now)
    return found[0]


def _apply(session: Session, failed: bool, now: datetime) -> None:
    topup = TopUp.objects.select_related("tenant__stripe_customer").filter(public_id=session.reference).first()
    if topup is None or session.mode != "payment":
        return
    if session.customer != topup.tenant.stripe_customer.customer_id or topup.session_id not in (None, session.id):
        log.error("session_of_somebody_else", session=session.id, topup=topup.public_id)
        return
    if session.paid:
        _credit(topup, session, now)
    elif session.status == "expired" or failed:
        state = TopUp.State.FAILED if failed else TopUp.State.EXPIRED
        TopUp.objects.filter(pk=topup.pk, state=TopUp.State.OPEN).update(state=state, session_id=session.id, ended_at=now)


def _credit(topup: TopUp, session: Session, now: datetime) -> None:
    paid = money.from_minor(session.amount_minor, session.currency)
    if session.currency != topup.currency or paid < topup.micros:
        log.error("paid_less_than_asked", session=session.id, paid_minor=session.amount_minor, currency=session.currency)
        return
    reason = f"credit bought, {topup.public_id}"
    ledger.receive(topup.tenant, SourceType.CHECKOUT, topup.public_id, topup.micros, reason, now)
    fields = {"state": TopUp.State.PAID, "session_id": session.id, "payment_id": session.payment, "ended_at": now}
    TopUp.objects.filter(pk=topup.pk).exclude(state=TopUp.State.PAID).update(**fields)
    # Jobs are locked before accounts, so not in this transaction; should it be lost, the notice is not done and is handled again.
    transaction.on_commit(lambda: resumption.resume_paid(topup.tenant, now))
