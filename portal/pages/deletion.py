"""The answer to a page's button that deletes something for good, once its name was typed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from portal.errors import Invalid
from portal.names import check_typed
from tenants.models import Tenant, User

Delete = Callable[[Tenant, User, Any, datetime], object]


def delete_typed(request: HttpRequest, thing: Any, delete: Delete, *, pages: str) -> HttpResponse:
    """``pages``: the namespace of the thing's pages: its own, where a refusal is told, and the list, where it is gone."""
    try:
        check_typed(request.POST.get("typed", ""), thing.name)
        delete(request.tenant, request.user, thing, timezone.now())
    except Invalid as refusal:
        messages.error(request, f"{thing.name} stays: {'; '.join(text for _, text in refusal.problems)}.")
        return redirect(f"{pages}:detail", thing.public_id)
    messages.success(request, f"{thing.name} is deleted.")
    return redirect(f"{pages}:list")
