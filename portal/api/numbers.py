"""Whole numbers in an address or a header: refused by name when they are none."""

from __future__ import annotations

from collections.abc import Mapping

from rest_framework.exceptions import ValidationError


def whole(asked: Mapping[str, str], name: str, default: int) -> int:
    """``asked[name]``, 0 or more; ``default`` where it is not given. Raises ``ValidationError``."""
    text = asked.get(name)
    return default if text is None else whole_of(name, text)


def whole_of(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValidationError({name: ["must be a whole number, 0 or more"]})
    return int(text)
