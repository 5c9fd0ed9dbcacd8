"""Who may see the console and the records admin: operators with a second factor. To everybody else the console is not there."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.utils import is_mfa_enabled
from django.contrib.admin import AdminSite
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache

from portal.pages.access import wants_json

_FACTORS = [Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN]


def may_operate(user: Any) -> bool:
    """An operator with a second factor; recovery codes alone are none."""
    return bool(user.is_authenticated and user.is_active and user.is_staff and is_mfa_enabled(user, _FACTORS))


def operator_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """404 for whoever is no operator; an operator without a second factor is told to set one up. Nothing of it is cached."""

    @wraps(view)
    def open_to_operators(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_staff:
            raise Http404
        if not may_operate(request.user):
            return _second_factor_first(request)
        return view(request, *args, **kwargs)

    return never_cache(_signed_in(login_required(open_to_operators)))


def guard_records(site: AdminSite) -> None:
    """The records admin demands what the console demands: each of its pages, and its login of who is signed in already."""
    site.has_permission = lambda request: may_operate(request.user)
    site.login = _with_factor(site.login)
    admin_view = site.admin_view
    site.admin_view = lambda view, cacheable=False: _with_factor(admin_view(view, cacheable))


def _with_factor(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """An operator without a second factor is told to set one up; everybody else is the view's to judge."""

    @wraps(view)
    def told(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_staff and not may_operate(request.user):
            return never_cache(_second_factor_first)(request)
        return view(request, *args, **kwargs)

    return told


def _second_factor_first(request: HttpRequest) -> HttpResponse:
    return render(request, "console/second_factor.html", status=403)


def _signed_in(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A script that is signed out is told so; the login page would be no answer to it."""

    @wraps(view)
    def told(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated and wants_json(request):
            error = {"message": "You are signed out. Sign in again.", "type": "authentication", "param": None, "code": "signed_out"}
            return JsonResponse({"error": error}, status=401)
        return view(request, *args, **kwargs)

    return told
