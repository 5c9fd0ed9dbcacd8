"""The answer to a page's button that deletes something for good, once its name was typed.

Who mistyped it finds the form open again, with the reason at its field: it waits in the session for the page that the answer leads to.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from portal.errors import Invalid
from portal.names import TYPED, check_typed
from tenants.models import Tenant, User

Delete = Callable[[Tenant, User, Any, datetime], object]
_KEY = "refused_deletion"
_SEPARATOR = "@"


def delete_typed(request: HttpRequest, thing: Any, delete: Delete, *, pages: str) -> HttpResponse:
    """``pages``: the namespace of the thing's pages: its own, where a refusal is told, and the list, where it is gone."""
    try:
        check_typed(request.POST.get("typed", ""), thing.name)
        delete(request.tenant, request.user, thing, timezone.now())
    except Invalid as refusal:
        if not mistyped(request, refusal, thing.public_id):
            messages.error(request, f"{thing.name} stays: {'; '.join(text for _, text in refusal.problems)}.")
        return redirect(f"{pages}:detail", thing.public_id)
    messages.success(request, f"{thing.name} is deleted.")
    return redirect(f"{pages}:list")


def mistyped(request: HttpRequest, refusal: Invalid, thing: str, part: object = "") -> bool:
    """Whether ``refusal`` is about what was typed, which is then kept for the page of ``thing``; ``part``: of it, one version say."""
    said = [text for field, text in refusal.problems if field == TYPED]
    if said:
        of = f"{thing}{_SEPARATOR}{part}" if part else thing
        request.session[_KEY] = {"of": of, "typed": request.POST.get("typed", "")[:200], "reason": f"{said[0].capitalize()}."}
    return bool(said)


def refused(request: HttpRequest, thing: str) -> dict[str, str] | None:
    """{"of", "typed", "reason"} for ``c-typed``, once; ``of``: the id of ``thing``, and behind an @ its part."""
    kept = request.session.get(_KEY)
    if kept is None or kept["of"].partition(_SEPARATOR)[0] != thing:
        return None
    del request.session[_KEY]
    return kept
