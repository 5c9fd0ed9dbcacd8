"""Escapes of JSON texts that stand for nothing: half a UTF-16 pair. The decoder refuses them, some as an early end of the text."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    rb"\\\\"  # a backslash, of which what follows is no escape
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
ADVICE = "\\ud800 to \\udfff stand in pairs only, a high one before a low one"


def lone_surrogate(text: bytes) -> int | None:
    """Where the first half pair of a JSON text begins, counted from 0."""
    return next((found.start() for found in _ESCAPES.finditer(text) if found["half"]), None)
