"""Paid plans. Stripe says which plan is paid for; the account's plan and its credit line follow."""

from __future__ import annotations

from datetime import datetime

import structlog
from django.db import transaction

from portal.billing import fresh, ledger, setup
from portal.billing.models import LIVE, Account, Plan, Subscription
from portal.billing.stripe_client import Stripe
from portal.billing.stripe_customers import customer_of, tenant_of
from portal.billing.stripe_records import Refused, Subscribed, Unreachable
from portal.billing.topups import NotNow
from portal.errors import Conflict, Invalid
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User

log = structlog.get_logger(__name__)

# While Stripe still hopes to collect, the line stays: `standing` decides about jobs. When it has given up, nothing more is lent.
LENDS = ("trialing", "active", "past_due")


def live(tenant: Tenant) -> Subscription | None:
    """The newest one that is not over."""
    found: Subscription | None = tenant.subscriptions.filter(status__in=LIVE).select_related("plan").first()
    return found


def choose(stripe: Stripe | None, tenant: Tenant, user: User, plan_key: str, back: str, now: datetime) -> str:
    """The address of a Checkout for a plan; of who has one, the page on which Stripe asks whether to change it. Nothing is charged yet.

    Raises ``Forbidden``, ``Invalid``, ``Conflict``.
    """
    require(tenant, user, Role.ADMIN)
    plan = Plan.objects.filter(key=plan_key).exclude(stripe_price="").first()
    if plan is None:
        raise Invalid([("plan", "is not for sale; choose one of the list")])
    if stripe is None:
        raise NotNow([("plan", "plans cannot be bought on this installation; ask your operator")])
    standing = live(tenant)
    if standing is not None and standing.plan == plan:
        raise Conflict([("plan", f"you have {plan.name} already")])
    audit.record(tenant, user, "billing.plan", plan.key, name=plan.name)
    try:
        customer = customer_of(stripe, tenant, now)
        if standing is not None:
            return stripe.change_plan(customer=customer, subscription=standing.subscription_id, price=plan.stripe_price, return_url=back)
        return stripe.sell_plan(customer=customer, reference=tenant.public_id, price=plan.stripe_price, back=back).url
    except (Unreachable, Refused) as error:
        log.warning("checkout_not_opened", plan=plan.key, reason=str(error))
        raise NotNow([("plan", "Stripe does not answer, and nothing was charged; try again in a minute")]) from None


def portal(stripe: Stripe | None, tenant: Tenant, user: User, back: str, now: datetime) -> str:
    """The address of Stripe's customer portal: cards, invoices, the subscription."""
    require(tenant, user, Role.ADMIN)
    if stripe is None:
        raise NotNow([("portal", "there is none on this installation; ask your operator")])
    try:
        return stripe.open_portal(customer=customer_of(stripe, tenant, now), return_url=back)
    except (Unreachable, Refused) as error:
        log.warning("portal_not_opened", reason=str(error))
        raise NotNow([("portal", "Stripe does not answer; try again in a minute")]) from None


def mirror(stripe: Stripe, subscription_id: str, now: datetime) -> None:
    fresh.write(subscription_id, lambda: stripe.subscription(subscription_id), lambda found: _apply(found, now), now)


def _apply(found: Subscribed, now: datetime) -> None:
    tenant = tenant_of(found.customer)
    if tenant is None:
        log.warning("subscription_of_unknown_customer", subscription=found.id)
        return
    account = ledger.locked(tenant, now)
    values = {
        "tenant": tenant,
        "plan": Plan.objects.filter(stripe_price__in=[price for price in found.prices if price]).first(),
        "status": found.status,
        "period_start": found.period_start,
        "period_end": found.period_end,
        "cancel_at_period_end": found.cancel_at_period_end,
        "created_at": found.created_at,
    }
    row, _ = Subscription.objects.update_or_create(subscription_id=found.id, defaults=values)
    _settle(account, row)


def _settle(account: Account, row: Subscription) -> None:
    """The account as its newest live subscription says; without one, the plan that it paid for is over."""
    standing = live(account.tenant)
    plan, line = account.plan, 0
    if standing is not None and standing.plan is not None:
        plan, line = standing.plan, standing.plan.overage_micros if standing.status in LENDS else 0
    elif standing is None and account.plan == row.plan:
        plan = setup.default_plan()
    Account.objects.filter(pk=account.pk).update(plan=plan, credit_line_micros=line)


def follow_plan(plan: Plan) -> None:
    """A plan's overage was changed: so are the lines of those who pay for it."""
    with transaction.atomic():
        paying = Subscription.objects.filter(plan=plan, status__in=LENDS).values("tenant")
        Account.objects.filter(tenant__in=paying, plan=plan).update(credit_line_micros=plan.overage_micros)
