"""Micro-units in words and back, exactly."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from django.conf import settings

from portal.billing.models import MILLION

MOST = 10**15  # a thousand million units


def shown(micros: int) -> str:
    """12.34 USD; more places than two only where they are not zero."""
    whole, rest = divmod(abs(micros), MILLION)
    places = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if micros < 0 else ''}{whole:,}.{places} {settings.CURRENCY}"


def read(text: str) -> int:
    """Micro-units of ``text``, as in 12.50. Raises ``ValueError`` for anything that is no amount with at most six places."""
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value * MILLION != int(value * MILLION) or abs(value * MILLION) > MOST:
        raise ValueError(f"{text.strip()[:40]!a} is no amount; write it as 12.50, with at most six decimal places")
    return int(value * MILLION)
