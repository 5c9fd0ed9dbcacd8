"""Numbers in the API's addresses and headers: what is none, or too small or too large, is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import QueryDict
from drf_spectacular.utils import OpenApiParameter

from portal import numbers
from portal.errors import Invalid
from portal.numbers import MOST


def whole(asked: Mapping[str, str], name: str, default: int, *, least: int = 0, most: int = MOST) -> int:
    """``asked[name]``, from ``least`` to ``most``; ``default`` where it is not given. Raises ``Invalid``."""
    text = _once(asked, name)
    return default if text is None else whole_of(name, text, least=least, most=most)


def whole_of(name: str, text: str, *, least: int = 0, most: int = MOST) -> int:
    number = numbers.whole(text, most=most)
    if number is None or number < least:
        raise Invalid([(name, f"must be a whole number from {least} to {most}")])
    return number


def decimal(asked: Mapping[str, str], name: str) -> float | None:
    """``asked[name]``, a finite number; None where it is not given. Raises ``Invalid``."""
    text = _once(asked, name)
    number = numbers.finite(text)
    if text is not None and number is None:
        raise Invalid([(name, "must be a finite number")])
    return number


def _once(asked: Mapping[str, str], name: str) -> str | None:
    """An address may name it twice; which of the two was meant, nobody knows."""
    if isinstance(asked, QueryDict) and len(asked.getlist(name)) > 1:
        raise Invalid([(name, "is given twice")])
    return asked.get(name)


def parameter(name: str, description: str = "", *, least: int = 0, most: int = MOST, default: int | None = None) -> OpenApiParameter:
    """What the schema says of a number that ``whole`` reads."""
    said: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    return OpenApiParameter(name, said if default is None else {**said, "default": default}, description=description)
