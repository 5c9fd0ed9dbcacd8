"""How long an organisation keeps what its jobs left: the rules, and what they would let go of before anything is."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from portal.errors import Invalid
from portal.jobs import retention
from portal.pages.access import changed_by, tenant_page
from tenants.access import rank
from tenants.models import Role

SHOWN_JOBS = 50


class RetentionForm(forms.Form):
    completions_days = forms.IntegerField(
        label="Completions",
        required=False,
        min_value=1,
        max_value=retention.MOST_DAYS,
        help_text="Days after a job has ended until what it sampled, in steps and evaluations, is deleted. Empty: never.",
    )
    versions_days = forms.IntegerField(
        label="Checkpoints",
        required=False,
        min_value=1,
        max_value=retention.MOST_DAYS,
        help_text="Days after a job has ended until its checkpoints are deleted. The latest, the best, kept ones and those that another "
        "job begins with stay. Empty: never.",
    )


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
@changed_by(Role.ADMIN)
def index(request: HttpRequest) -> HttpResponse:
    """With ``look`` among what is posted: what those rules would let go of, without saving them."""
    saved = retention.rules(request.tenant)
    posted = request.POST if request.method == "POST" else None
    form = RetentionForm(posted, initial={"completions_days": saved.completions_days, "versions_days": saved.versions_days})
    if form.is_valid() and "look" not in request.POST and _changed(request, form):
        return redirect("accounts:retention")
    wanted = retention.Rules(**form.cleaned_data) if form.is_valid() else saved
    context: dict[str, Any] = {
        "form": form,
        "saved": saved,
        "wanted": wanted,
        "looking": wanted != saved,
        "preview": retention.preview(request.tenant, wanted, timezone.now()),
        "shown": SHOWN_JOBS,
        "may_change": rank(request.role) >= rank(Role.ADMIN),
    }
    return render(request, "jobs/retention.html", context, status=422 if form.errors else 200)


def _changed(request: HttpRequest, form: RetentionForm) -> bool:
    try:
        retention.change(request.tenant, request.user, retention.Rules(**form.cleaned_data), timezone.now())
    except Invalid as refusal:
        for field, text in refusal.problems:
            form.add_error(field, text)
        return False
    messages.success(request, "Saved. What is due goes within the hour.")
    return True
