"""API tokens: made, shown once, revoked."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.pages.access import maker_page, tenant_page
from portal.tokens.forms import RotationForm, TokenForm
from tenants.access import Refused
from tenants.actions import check_may_rotate, create_token, revoke_token, rotate_token


@require_safe
@tenant_page
def index(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    tokens = [(token, token.is_live(now)) for token in request.tenant.api_tokens.select_related("user")]
    return render(request, "tokens/list.html", {"tokens": tokens, "now": now})


@never_cache
@maker_page
def new(request: HttpRequest) -> HttpResponse:
    """The secret is in this one answer only: not in the session, not behind an address."""
    form = TokenForm(request.POST or None)
    if not form.is_valid():
        return render(request, "tokens/new.html", {"form": form}, status=422 if form.is_bound else 200)
    token, secret = create_token(request.tenant, request.user, form.cleaned_data["name"], timezone.now(), **form.wish())
    return render(request, "tokens/created.html", {"token": token, "secret": secret}, status=201)


@never_cache
@tenant_page
def rotate(request: HttpRequest, token_id: str) -> HttpResponse:
    """A new secret in the place of the old one; shown in this one answer only."""
    old = get_object_or_404(request.tenant.api_tokens, token_id=token_id)
    if request.method == "POST":
        check_may_rotate(request.tenant, request.user, old)
    form = RotationForm(request.POST or None)
    if form.is_valid():
        overlap = timedelta(hours=form.cleaned_data["hours"])
        try:
            token, secret = rotate_token(request.tenant, request.user, old, timezone.now(), overlap=overlap)
        except Refused as error:
            form.add_error(None, f"This token cannot be rotated: {error}.")
        else:
            old.refresh_from_db()
            return render(request, "tokens/created.html", {"token": token, "secret": secret, "old": old}, status=201)
    return render(request, "tokens/rotate.html", {"form": form, "token": old}, status=422 if form.is_bound else 200)


@require_POST
@tenant_page
def revoke(request: HttpRequest, token_id: str) -> HttpResponse:
    token = get_object_or_404(request.tenant.api_tokens, token_id=token_id)
    if revoke_token(request.tenant, request.user, token, timezone.now()):
        messages.success(request, f"{token.name} is revoked: it opens nothing from now on.")
    return redirect("tokens:list")
