"""The page on which an organisation buys credit and a plan, sees its invoices, and limits what it spends."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.billing import ledger, limits, standing, stripe_client, subscriptions, topups
from portal.billing.budget_form import MoneyField
from portal.billing.forecast import forecast
from portal.billing.models import Plan
from portal.errors import Invalid
from portal.pages.access import changed_by, tenant_page
from tenants.access import role_in
from tenants.models import Role

INVOICES = 36
TOPUPS = 12
_MONEY = {"inputmode": "decimal", "autocomplete": "off"}


class CreditForm(forms.Form):
    amount = MoneyField(
        label="Amount", widget=forms.TextInput(attrs=_MONEY), help_text="As in 50.00. You pay at Stripe and come back here."
    )


class LimitsForm(forms.Form):
    alert = MoneyField(
        label="Tell us at",
        required=False,
        widget=forms.TextInput(attrs=_MONEY),
        help_text="When a month's usage costs so much, owners and administrators get a mail. Nothing stops.",
    )
    stop = MoneyField(
        label="Stop at",
        required=False,
        widget=forms.TextInput(attrs=_MONEY),
        help_text="Before a month's usage would cost more, nothing new starts, and running jobs pause after the step that runs.",
    )


@never_cache
@require_safe
@tenant_page
def index(request: HttpRequest) -> HttpResponse:
    return _page(request)


@require_POST
@tenant_page
@changed_by(Role.ADMIN)
def credit(request: HttpRequest) -> HttpResponse:
    form = CreditForm(request.POST)
    if not form.is_valid():
        return _page(request, credit_form=form, status=422)
    try:
        where = topups.buy(
            stripe_client.connect(), request.tenant, request.user, form.cleaned_data["amount"] or 0, _here(request), timezone.now()
        )
    except Invalid as refused:
        form.add_error("amount", str(refused.problems[0][1]))
        return _page(request, credit_form=form, status=422)
    return _away(where)


@require_POST
@tenant_page
@changed_by(Role.ADMIN)
def plan(request: HttpRequest) -> HttpResponse:
    key = request.POST.get("plan", "")
    return _sent(request, lambda: subscriptions.choose(stripe_client.connect(), *_who(request), key, _here(request), timezone.now()))


@require_POST
@tenant_page
@changed_by(Role.ADMIN)
def portal(request: HttpRequest) -> HttpResponse:
    return _sent(request, lambda: subscriptions.portal(stripe_client.connect(), *_who(request), _here(request), timezone.now()))


@require_POST
@tenant_page
@changed_by(Role.ADMIN)
def spending(request: HttpRequest) -> HttpResponse:
    form = LimitsForm(request.POST)
    if form.is_valid():
        try:
            limits.change(*_who(request), form.cleaned_data["alert"], form.cleaned_data["stop"], timezone.now())
        except Invalid as refused:
            for field, message in refused.problems:
                form.add_error(field, message)
    if form.errors:
        return _page(request, limits_form=form, status=422)
    messages.success(request, "Saved.")
    return redirect("billing:account")


def _page(
    request: HttpRequest, *, credit_form: CreditForm | None = None, limits_form: LimitsForm | None = None, status: int = 200
) -> HttpResponse:
    now, tenant = timezone.now(), request.tenant
    account = ledger.account_of(tenant, now)
    paid = subscriptions.live(tenant)
    plans = Plan.objects.exclude(stripe_price="").exclude(pk=paid.plan_id if paid else None)
    typed = {"alert": limits.typed(account.alert_micros), "stop": limits.typed(account.stop_micros)}
    context = {
        "account": account,
        "standing": standing.of(tenant, now),
        "subscription": paid,
        "plans": plans.order_by("included_micros", "name"),
        "invoices": tenant.invoices.exclude(status="draft")[:INVOICES],
        "topups": tenant.topups.exclude(state="failed")[:TOPUPS],
        "stripe": bool(settings.STRIPE_KEY),
        "test_mode": settings.STRIPE_KEY.startswith(("sk_test_", "rk_test_")),
        "may_buy": role_in(tenant, request.user) in (Role.OWNER, Role.ADMIN),
        "forecast": forecast(tenant, now),
        "credit_form": credit_form or CreditForm(),
        "limits_form": limits_form or LimitsForm(initial=typed),
    }
    return render(request, "billing/account.html", context, status=status)


def _who(request: HttpRequest) -> tuple[Any, Any]:
    return request.tenant, request.user


def _here(request: HttpRequest) -> str:
    return str(request.build_absolute_uri(reverse("billing:account")))


def _sent(request: HttpRequest, ask: Any) -> HttpResponse:
    """Off to Stripe; or back, with the reason."""
    try:
        return _away(ask())
    except Invalid as refused:
        messages.error(request, f"{refused.problems[0][1][:1].upper()}{refused.problems[0][1][1:]}.")
        return redirect("billing:account")


def _away(where: str) -> HttpResponse:
    return HttpResponse(status=303, headers={"Location": where})
