"""What a tenant used and what it has left; the price list, which anybody may read."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.billing import estimates, gate, ledger, quotas, sources, usage
from portal.billing.chart import chart
from portal.billing.costs import cost_of
from portal.billing.forecast import forecast
from portal.billing.models import Kind
from portal.billing.prices import current
from portal.errors import Invalid
from portal.jobs import catalog, door
from portal.jobs.forms import JobForm
from portal.pages.access import tenant_page
from portal.query import choice
from portal.streaming import body, gathered
from tenants.models import Tenant

JOBS_SHOWN = 50
LETTERS = 20
_FILES = {"daily": usage.daily_csv, "entries": usage.entries_csv}


@never_cache
@require_safe
@tenant_page
def index(request: HttpRequest) -> HttpResponse:
    """``?month=2026-11``, ``?show=tokens``. A month that is none shows the present one and says so."""
    now, tenant, problem = timezone.now(), request.tenant, ""
    try:
        month = usage.month_of(request.GET.get("month"), now)
    except Invalid as bad:
        month, problem = usage.month_of(None, now), str(bad)
    money = choice(request, "show", ("money", "tokens"), noun="unit") != "tokens"
    days = usage.by(tenant, month, "day")
    context = {
        "problem": problem,
        "month": month,
        "is_this_month": month == usage.month_of(None, now),
        "money": money,
        "chart": chart(month, days, money=money),
        "days": days[::-1],
        "kinds": usage.by(tenant, month, "kind"),
        "models": usage.by(tenant, month, "model"),
        "total": usage.total(days),
        "account": ledger.account_of(tenant, now),
        "uses": quotas.uses(tenant, now),
        "holds": tenant.holds.filter(closed_at=None, micros__gt=0).count(),
        "letters": _letters(tenant),
        "forecast": forecast(tenant, now),
        "stripe": bool(settings.STRIPE_KEY),
        **_jobs(tenant, month),
    }
    return render(request, "billing/usage.html", context, status=400 if problem else 200)


@never_cache
@require_safe
@tenant_page
def download(request: HttpRequest, what: str) -> HttpResponse:
    """``what``: daily | entries."""
    try:
        month = usage.month_of(request.GET.get("month"), timezone.now())
    except Invalid as bad:
        return HttpResponse(f"{bad}\n", status=400, content_type="text/plain")
    name = f'attachment; filename="{what}-{month.key}.csv"'
    lines = body(request, gathered(_FILES[what](request.tenant, month)))
    return StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8", headers={"Content-Disposition": name})


@never_cache
@require_safe
@tenant_page
def job_cost(request: HttpRequest, public_id: str) -> HttpResponse:
    """The run page's panel, which asks for itself again while the job is open."""
    job = get_object_or_404(request.tenant.jobs, public_id=public_id)
    return render(request, "billing/job_cost.html", cost_of(job))


@never_cache
@require_POST
@tenant_page
def estimate(request: HttpRequest) -> HttpResponse:
    """What the job of the form, as it stands, will cost: a part of the form's page. A form that is not whole yet has none."""
    form = JobForm(request.tenant, catalog.known_models(timezone.now()), request.POST)
    found = None
    if form.is_valid():
        with suppress(Invalid):  # the form tells what is wrong when it is sent
            order = door.check(request.tenant, form.raw(), timezone.now())
            found = estimates.estimate(request.tenant, order.spec, timezone.now(), gate.STEPS_AHEAD)
    free = ledger.account_of(request.tenant, timezone.now()).available_micros
    return render(request, "billing/estimate.html", {"estimate": found, "free": free})


@require_safe
def prices(request: HttpRequest) -> HttpResponse:
    """For everybody, signed in or not."""
    return render(request, "billing/prices.html", {"prices": current(timezone.now()), "kinds": Kind})


def _jobs(tenant: Tenant, month: usage.Month) -> dict[str, Any]:
    sums = usage.by(tenant, month, "source")
    shown = sums[:JOBS_SHOWN]
    names = {job.public_id: job for job in tenant.jobs.filter(public_id__in=[found.name.partition("@")[0] for found in shown])}
    rows = [(found, names.get(found.name.partition("@")[0]), sources.words_of(found.name)) for found in shown]
    return {"jobs": rows, "more_jobs": len(sums) - len(shown)}


def _letters(tenant: Tenant) -> Any:
    """Credit and corrections, newest first: what somebody decided, not what the meter counted. They have an index of their own."""
    return tenant.entries.exclude(by="").order_by("-id")[:LETTERS]
