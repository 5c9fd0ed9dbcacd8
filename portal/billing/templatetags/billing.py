from __future__ import annotations

from decimal import Decimal

from django import template

from portal.billing.models import Kind
from portal.billing.money import exponent, shown

register = template.Library()


@register.filter
def money(micros: int) -> str:
    """12.34 USD"""
    return shown(micros)


@register.filter
def kind_name(kind: str) -> str:
    return Kind(kind).label if kind in Kind.values else kind


@register.simple_tag
def minor(amount: int, currency: str) -> str:
    """An amount in the currency's smallest unit, as people write it."""
    places = exponent(currency)
    return f"{Decimal(amount).scaleb(-places):,.{places}f} {currency}"
