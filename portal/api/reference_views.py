"""The API reference: for everybody, signed in or not."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator

from portal.api import reference

MAX_SEARCH = 100


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """``q``: only operations that say each of these words."""
    found = reference.groups(schema(), request.build_absolute_uri("/").rstrip("/"))
    text = request.GET.get("q", "").strip()[:MAX_SEARCH]
    shown = reference.matching(found, text) if text else found
    count = sum(len(group.operations) for group in shown)
    return render(request, "api/reference.html", {"groups": shown, "nouns": found, "q": text, "count": count})


@cache
def schema() -> dict[str, Any]:
    """As ``/api/schema/`` gives it; it changes with the code only."""
    return SchemaGenerator().get_schema(request=None, public=True)
