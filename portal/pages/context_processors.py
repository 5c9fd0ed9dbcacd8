"""What the frame around every page needs: the organisation, the ones to switch to, and where in the navigation we are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import SimpleLazyObject

from portal.notices.wishes import unread
from tenants.models import Role

_NAV = (
    ("home", "Home", "home", ""),
    ("jobs:list", "Jobs", "jobs", "jobs"),
    ("datasets:list", "Datasets", "datasets", "datasets"),
    ("rewards:list", "Rewards", "rewards", "rewards"),
    ("billing:usage", "Usage", "usage", "billing"),
    ("accounts:organisation", "Settings", "settings", "accounts tokens"),
)

_CONSOLE = (
    ("console:index", "Overview", "usage", ""),
    ("console:tenants", "Organisations", "user", ""),
    ("console:engines", "Engines", "settings", ""),
    ("console:what-if", "What if", "flask", ""),
    ("console:audit", "Acts", "book", ""),
    ("home", "The site", "home", ""),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    label: str
    icon: str
    url: str
    current: bool


def shell(request: HttpRequest) -> dict[str, Any]:
    """``may_write``: whether the person may change things here; viewers are offered nothing that would be refused."""
    tenant = getattr(request, "tenant", None)
    if request.resolver_match and request.resolver_match.namespace == "console":
        return {"tenant": None, "nav": [_entry(request, *entry) for entry in _CONSOLE]}
    if tenant is None:
        return {"tenant": None, "nav": []}
    may_write = getattr(request, "role", None) not in (None, Role.VIEWER)
    return {"tenant": tenant, "nav": _entries(request), "may_write": may_write, **_lazily(request)}


def _lazily(request: HttpRequest) -> dict[str, Any]:
    """What only the whole frame needs, not the fragments that refresh themselves."""
    return {
        "memberships": SimpleLazyObject(lambda: _memberships(request)),
        "unread": SimpleLazyObject(lambda: unread(request.tenant, request.user)),
    }


def _memberships(request: HttpRequest) -> list[Any]:
    return list(request.user.memberships.select_related("tenant").order_by("id"))


def _entries(request: HttpRequest) -> list[Entry]:
    return [_entry(request, *entry) for entry in _NAV]


def _entry(request: HttpRequest, view: str, label: str, icon: str, space: str) -> Entry:
    """``space``: the namespaces whose every page the entry stands for; "": the one page ``view``."""
    match = request.resolver_match
    namespace, name = (match.namespace, match.view_name) if match else (None, None)
    return Entry(label=label, icon=icon, url=reverse(view), current=namespace in space.split() if space else name == view)
