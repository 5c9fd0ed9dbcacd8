"""Reading what a page's address asks for. What is no sensible value counts as not given: a mistyped link still leads somewhere."""

from __future__ import annotations

from django.http import HttpRequest

from portal import numbers


def whole(request: HttpRequest, name: str, default: int, *, most: int = 9_999_999) -> int:
    """A whole number from 0 to ``most``."""
    found = numbers.whole(request.GET.get(name), most=most)
    return default if found is None else found


def decimal(request: HttpRequest, name: str) -> float | None:
    """A finite number, or None."""
    return numbers.finite(request.GET.get(name))


def text(request: HttpRequest, name: str, most: int = 200) -> str:
    return request.GET.get(name, "").replace("\0", "").strip()[:most]
