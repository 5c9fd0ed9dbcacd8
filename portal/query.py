"""Reading what a page's address asks for. What there is not counts as not given: a mistyped link still leads somewhere, and the page says
what it left out (``pages/unread.html``, in the frame of every page).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.paginator import Page, Paginator
from django.http import HttpRequest

from portal import numbers

_SHOWN = 40


@dataclass(kw_only=True)
class Unread:
    """What an address asks for in vain. ``said``: a sentence for each; ``address``: the same page without them."""

    request: HttpRequest
    said: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        left = self.request.GET.copy()
        for name in self.names:
            left.pop(name, None)
        return f"{self.request.path}?{left.urlencode()}" if left else self.request.path


def left_out(request: HttpRequest, name: str, sentence: str) -> None:
    """The page says ``sentence``, and links to itself without the parameter ``name``."""
    unread = request.__dict__.setdefault("unread", Unread(request=request))
    if name not in unread.names:
        unread.names.append(name)
        unread.said.append(sentence)


def choice(request: HttpRequest, name: str, known: Container[str], otherwise: str = "", *, noun: str = "") -> str:
    """One of ``known``; ``noun``: what the page calls it, if not ``name``."""
    given = text(request, name)
    if not given or given in known:
        return given or otherwise
    left_out(request, name, f"There is no {noun or name} “{_cut(given)}”, so that choice is left out.")
    return otherwise


def whole(request: HttpRequest, name: str, default: int, *, most: int = 9_999_999) -> int:
    """A whole number from 0 to ``most``."""
    given = request.GET.get(name)
    found = numbers.whole(given, most=most)
    if found is None and given and given.strip():
        left_out(request, name, f"{_called(name)} “{_cut(given)}” is no whole number from 0 to {most:,}, so it is left out.")
    return default if found is None else found


def decimal(request: HttpRequest, name: str) -> float | None:
    """A finite number, or None."""
    given = request.GET.get(name)
    found = numbers.finite(given)
    if found is None and given and given.strip():
        left_out(request, name, f"{_called(name)} “{_cut(given)}” is no number, so it is left out.")
    return found


def text(request: HttpRequest, name: str, most: int = 200) -> str:
    return request.GET.get(name, "").replace("\0", "").strip()[:most]


def paged(request: HttpRequest, things: Any | Sequence[Any], per_page: int) -> Page:
    """The page that ``?page=`` names; the last one where there are not so many."""
    pages = Paginator(things, per_page)
    number = max(1, whole(request, "page", 1))
    if number > pages.num_pages:
        left_out(request, "page", f"There is no page {number:,}; the last one is shown.")
    return pages.get_page(number)


def _called(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _cut(given: str) -> str:
    return given if len(given) <= _SHOWN else f"{given[:_SHOWN]}…"
