from __future__ import annotations

from django import template

from portal.billing.models import Kind
from portal.billing.money import shown

register = template.Library()


@register.filter
def money(micros: int) -> str:
    """12.34 USD"""
    return shown(micros)


@register.filter
def kind_name(kind: str) -> str:
    return Kind(kind).label if kind in Kind.values else kind
