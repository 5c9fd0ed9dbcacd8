"""Who may see a page: one decorator, so that no view forgets it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse

from tenants.access import Forbidden


def tenant_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Logged in and in an organisation. An action's ``Forbidden`` becomes the 403 page with its sentence."""

    @wraps(view)
    def open_to_members(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.tenant is None:
            raise PermissionDenied("You belong to no organisation. Ask an owner of one to invite you.")
        try:
            return view(request, *args, **kwargs)
        except Forbidden as error:
            raise PermissionDenied(str(error)) from error

    return _signed_in(login_required(open_to_members))


def _signed_in(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A page is sent to the login. A script is told so instead: it would take the login page for its answer."""

    @wraps(view)
    def told(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        if request.headers.get("HX-Request"):
            return HttpResponse(status=204, headers={"HX-Refresh": "true"})
        if wants_json(request):
            error = {"message": "You are signed out. Sign in again.", "type": "authentication", "param": None, "code": "signed_out"}
            return JsonResponse({"error": error}, status=401)
        return view(request, *args, **kwargs)

    return told


def wants_json(request: HttpRequest) -> bool:
    """A script of ours asks with ``Accept: application/json``; a form without script asks for a page."""
    return request.accepts("application/json") and not request.accepts("text/html")
