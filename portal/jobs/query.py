"""Reading what an address asks for. What is no sensible value counts as not given: a mistyped link still leads somewhere."""

from __future__ import annotations

from django.http import HttpRequest


def whole(request: HttpRequest, name: str, default: int) -> int:
    """A whole number of at most seven digits."""
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 7 else default


def decimal(request: HttpRequest, name: str) -> float | None:
    """A finite number, or None."""
    try:
        value = float(request.GET.get(name, ""))
    except ValueError:
        return None
    return value if value - value == 0 else None


def text(request: HttpRequest, name: str, most: int = 200) -> str:
    return request.GET.get(name, "").replace("\0", "").strip()[:most]
