"""Numbers that somebody else wrote: in an address, a header, a name. What is none is None; each caller says what that means to it.

``portal.query`` reads the addresses of pages with these, where a mistyped link still leads somewhere; ``portal.api.numbers`` those of the
API, which refuses by name.
"""

from __future__ import annotations

import re
from math import inf, isfinite

_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
MOST = 9_999_999_999  # more rows than anybody has, and within what every database takes for a number


def whole(text: str | None, *, most: int = MOST) -> int | None:
    """A whole number from 0 to ``most``, in plain digits: no sign, no space, no digits of other scripts."""
    if not text or len(text) > len(str(most)) or not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= most else None


def finite(text: str | None) -> float | None:
    """A number that is one: neither NaN nor infinite, as JSON and people write them, where Python would take 1_000 too."""
    written = (text or "").strip()
    number = float(written) if _DECIMAL.fullmatch(written) else inf
    return number if isfinite(number) else None
