"""Stripe's spelling of nested values in forms: ``a[b]=1``, ``a[0][b]=2``."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl


def read(text: str) -> dict[str, Any]:
    """Nested dicts and lists of strings."""
    found: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        first, *rest = re.findall(r"[^\[\]]+", name)
        place = found
        for word in [first, *rest][:-1]:
            place = place.setdefault(word, {})
        place[[first, *rest][-1]] = value
    return {name: _lists(value) for name, value in found.items()}


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {name: _lists(part) for name, part in value.items()}
    return list(inner.values()) if inner and all(name.isdigit() for name in inner) else inner
