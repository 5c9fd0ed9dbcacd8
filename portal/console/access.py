"""Who may see the console: operators with a second factor. To everybody else it is not there."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.utils import is_mfa_enabled
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
            return render(request, "console/second_factor.html", status=403)
        return view(request, *args, **kwargs)

    return never_cache(_signed_in(login_required(open_to_operators)))


def _signed_in(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A script that is signed out is told so; the login page would be no answer to it."""

    @wraps(view)
    def told(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated and wants_json(request):
            error = {"message": "You are signed out. Sign in again.", "type": "authentication", "param": None, "code": "signed_out"}
            return JsonResponse({"error": error}, status=401)
        return view(request, *args, **kwargs)

    return told
