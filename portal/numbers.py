"""Numbers that somebody else wrote: in an address, a header, a name. What is none is None; each caller says what that means to it.

``portal.query`` reads the addresses of pages with these, where a mistyped link still leads somewhere; ``portal.api.numbers`` those of the
API, which refuses by name.
"""

from __future__ import annotations

from math import isfinite

MOST = 9_999_999_999  # more rows than anybody has, and within what every database takes for a number


def whole(text: str | None, *, most: int = MOST) -> int | None:
    """A whole number from 0 to ``most``, in plain digits: no sign, no space, no digits of other scripts."""
    if not text or len(text) > len(str(most)) or not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= most else None


def finite(text: str | None) -> float | None:
    """A number that is one: neither NaN nor infinite."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) else None
