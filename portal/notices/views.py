"""What happened, who is told how, and what became of each message."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.errors import Invalid
from portal.notices import carrying, webhooks, wishes
from portal.pages.access import changed_by, tenant_page
from tenants.models import Role, Tenant

SHOWN, LOG_SHOWN = 50, 50


@never_cache
@require_safe
@tenant_page
def index(request: HttpRequest) -> HttpResponse:
    """Looking at them is reading them."""
    return render(request, "notices/list.html", _context(request, read=True))


@require_POST
@tenant_page
def mail(request: HttpRequest) -> HttpResponse:
    wanted = request.POST.get("email") == "1"
    wishes.want_mail(request.tenant, request.user, wanted=wanted)
    messages.success(request, "You get a mail when a job of yours ends or pauses." if wanted else "You get no mails about jobs any more.")
    return redirect("notices:list")


@never_cache
@require_POST
@tenant_page
@changed_by(Role.ADMIN)
def add(request: HttpRequest) -> HttpResponse:
    typed = request.POST.get("url", "")
    try:
        webhook, secret = webhooks.create_webhook(request.tenant, request.user, typed)
    except Invalid as refusal:
        fault = "; ".join(text for _, text in refusal.problems)
        return render(request, "notices/list.html", {**_context(request), "typed": typed, "fault": fault}, status=422)
    return render(request, "notices/list.html", {**_context(request), "made": webhook, "secret": secret})


@require_POST
@tenant_page
@changed_by(Role.ADMIN)
def remove(request: HttpRequest, public_id: str) -> HttpResponse:
    webhook = get_object_or_404(request.tenant.webhooks, public_id=public_id)
    webhooks.remove_webhook(request.tenant, request.user, webhook)
    messages.success(request, f"{webhook.url} is told nothing any more.")
    return redirect("notices:list")


@require_POST
@tenant_page
@changed_by(Role.ADMIN)
def again(request: HttpRequest, delivery: int) -> HttpResponse:
    found = get_object_or_404(request.tenant.notice_deliveries.exclude(webhook=None), pk=delivery)
    carrying.again(found, timezone.now())
    messages.success(request, "It is sent once more.")
    return redirect("notices:list")


def _context(request: HttpRequest, *, read: bool = False) -> dict[str, object]:
    tenant: Tenant = request.tenant
    found = list(tenant.notices.select_related("job")[:SHOWN])
    setting = wishes.setting_of(tenant, request.user)
    seen = setting.read_id
    if read and found and found[0].pk > seen:
        wishes.read_up_to(tenant, request.user, found[0].pk)
    return {
        "notices": [(notice, notice.pk > seen) for notice in found],
        "setting": setting,
        "webhooks": tenant.webhooks.select_related("created_by"),
        "deliveries": tenant.notice_deliveries.select_related("notice__job", "webhook")[:LOG_SHOWN],
        "may_change": request.role in (Role.ADMIN, Role.OWNER),
    }
