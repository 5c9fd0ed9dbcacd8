"""What has to stand at Stripe before it can be told of anything: a meter for each kind, one for the overage, and the overage's price."""

from __future__ import annotations

from decimal import Decimal

from django.conf import settings

from portal.billing import money
from portal.billing.models import Kind
from portal.billing.outbox import METERS, OVERAGE
from portal.billing.stripe_client import Stripe


def set_up(stripe: Stripe) -> list[str]:
    """Make what is missing; its names. Twice is once."""
    units = {Kind.STORAGE: "megabyte-days"}
    words = {METERS[kind]: f"{label.capitalize()} {units.get(kind, 'tokens')}" for kind, label in Kind.choices}
    return stripe.set_up(
        meters={**words, OVERAGE: "Usage beyond credit (micro-units)"},
        overage_meter=OVERAGE,
        currency=settings.CURRENCY,
        micro_unit_minor=micro_unit_minor(settings.CURRENCY),
    )


def micro_unit_minor(currency: str) -> Decimal:
    """One micro-unit in the currency's smallest unit: 0.0001 cents, 0.000001 yen."""
    return Decimal(1).scaleb(money.exponent(currency) - 6)
