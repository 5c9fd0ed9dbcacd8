"""Micro-units in words and back, exactly."""

from __future__ import annotations

import re
from decimal import Decimal

from django.conf import settings

from portal.billing.models import MILLION

MOST = 10**15  # a thousand million units
_WRITTEN = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")  # Decimal takes 1e3, 1_000 and the digits of other scripts too


def shown(micros: int) -> str:
    """1,234.50 USD; more places than two only where they are not zero."""
    whole, _, places = plain(abs(micros)).partition(".")
    return f"{'-' if micros < 0 else ''}{int(whole):,}.{places} {settings.CURRENCY}"


def plain(micros: int) -> str:
    """1234.50, as ``read`` reads it."""
    whole, rest = divmod(abs(micros), MILLION)
    places = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if micros < 0 else ''}{whole}.{places}"


def read(text: str) -> int:
    """Micro-units of ``text``, as in 12.50. Raises ``ValueError`` for anything that is no amount with at most six places."""
    value = Decimal(text.strip() if _WRITTEN.fullmatch(text.strip()) else "NaN")
    if not value.is_finite() or value * MILLION != int(value * MILLION) or abs(value * MILLION) > MOST:
        raise ValueError(f"{text.strip()[:40]!a} is no amount; write it as 12.50, with at most six decimal places")
    return int(value * MILLION)


# Stripe's: what it calls the smallest unit of these is the unit itself, or a thousandth of it. All others have two places.
_NO_PLACES = frozenset(["BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF"])
_THREE_PLACES = frozenset(["BHD", "JOD", "KWD", "OMR", "TND"])


def exponent(currency: str) -> int:
    """Decimal places of the currency's smallest unit."""
    return 0 if currency in _NO_PLACES else 3 if currency in _THREE_PLACES else 2


def from_minor(amount: int, currency: str) -> int:
    """Micro-units of an amount in the currency's smallest unit; exact."""
    return amount * int(10 ** (6 - exponent(currency)))


def to_minor(micros: int, currency: str) -> int:
    """The amount in the currency's smallest unit. Raises ``ValueError`` where that is not exact: nothing is rounded on the way out.

    Of a currency with three places Stripe takes only tens of its smallest unit.
    """
    step = 10 ** (6 - exponent(currency)) * (10 if currency in _THREE_PLACES else 1)
    if micros % step:
        raise ValueError(f"{shown(micros)} has more decimal places than {currency} is paid in")
    return micros // int(10 ** (6 - exponent(currency)))
