"""A tenant at Stripe: one customer, made when it is first needed."""

from __future__ import annotations

from datetime import datetime

from portal.billing.models import StripeCustomer
from portal.billing.stripe_client import Stripe
from tenants.models import Role, Tenant


def customer_of(stripe: Stripe, tenant: Tenant, now: datetime) -> str:
    """Its id. Whoever asks at the same moment gets the same one: Stripe knows the request by its key, we by the tenant."""
    known = StripeCustomer.objects.filter(tenant=tenant).first()
    if known is None:
        owner = tenant.memberships.filter(role=Role.OWNER).select_related("user").order_by("id").first()
        made = stripe.create_customer(tenant=tenant.public_id, name=tenant.name, email=owner.user.email if owner else "", now=now)
        known, _ = StripeCustomer.objects.get_or_create(tenant=tenant, defaults={"customer_id": made, "created_at": now})
    return str(known.customer_id)


def tenant_of(customer: str) -> Tenant | None:
    """Whose customer this is; None: nobody's of ours."""
    found = StripeCustomer.objects.select_related("tenant").filter(customer_id=customer).first()
    return found.tenant if found else None
