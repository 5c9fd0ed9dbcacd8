"""Who may see a page: one decorator, so that no view forgets it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render

from tenants.access import Closed, Forbidden, closed, require
from tenants.models import Role


def tenant_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Logged in and in an organisation that is open to this person. An action's ``Forbidden`` becomes the 403 page with its sentence."""

    @wraps(view)
    def open_to_members(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.tenant is None:
            raise PermissionDenied("You belong to no organisation. Ask an owner of one to invite you, or create your own.")
        if reason := closed(request.tenant, request.user):
            return _shut(request, reason)
        return _allowed(view, request, *args, **kwargs)

    return _signed_in(login_required(open_to_members))


def changed_by(role: str) -> Callable[[Callable[..., HttpResponse]], Callable[..., HttpResponse]]:
    """Under one of the page decorators: whoever posts needs this role, and is asked for it before anything that was sent is read."""

    def ask_first(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @wraps(view)
        def asked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if request.method == "POST":
                require(request.tenant, request.user, role)
            return view(request, *args, **kwargs)

        asked.role_to_post = role  # the decorators above hand it on: a test compares it with the table of rights
        return asked

    return ask_first


def maker_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """``tenant_page`` for what only makes something: viewers are told so instead of being shown a form that would be refused."""

    @wraps(view)
    def open_to_makers(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.role == Role.VIEWER and request.method != "POST":
            return render(request, "pages/only_looking.html")
        return view(request, *args, **kwargs)

    return tenant_page(changed_by(Role.MEMBER)(open_to_makers))


def person_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Logged in is enough: pages of a person, who may belong to no organisation, or to one that is closed at the moment."""

    @wraps(view)
    def open_to_persons(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return _allowed(view, request, *args, **kwargs)

    return _signed_in(login_required(open_to_persons))


def _allowed(view: Callable[..., HttpResponse], request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    try:
        return view(request, *args, **kwargs)
    except Forbidden as error:
        raise PermissionDenied(str(error)) from error


def _shut(request: HttpRequest, reason: Closed) -> HttpResponse:
    """Where only a second factor is missing, a page leads to the one thing that opens it."""
    if reason.code != "mfa_required" or wants_json(request) or request.headers.get("HX-Request"):
        raise PermissionDenied(str(reason)) from reason
    messages.warning(request, str(reason))
    return redirect("mfa_index")


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
