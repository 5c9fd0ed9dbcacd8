"""The Reward Lab in the browser: a draft that is typed, checked and tried, or a stored reward that is tried."""

from __future__ import annotations

import json
import secrets
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.errors import Invalid
from portal.jobs import catalog, reach
from portal.pages.access import changed_by, tenant_page
from portal.query import left_out, text
from portal.rewards import form_values, lab, sheets
from portal.rewards.examples import items_of, rules
from portal.rewards.forms import RewardForm
from portal.rewards.kinds import BY_TYPE, KINDS, facts
from portal.rewards.models import LabRun, Reward, Sheet
from portal.rewards.run_view import run_context
from portal.rewards.trial_form import TrialForm
from tenants.access import require, role_in
from tenants.models import Role

SHOWN_RUNS = 10


@never_cache
@tenant_page
def draft(request: HttpRequest, sheet_id: str) -> HttpResponse:
    """``do``: save (also what the page does by itself), check, run or create."""
    sheet = get_object_or_404(sheets.drafts_of(request.tenant, request.user), public_id=sheet_id)
    require(request.tenant, request.user, Role.MEMBER)
    if request.method != "POST":
        return _draft_page(request, sheet, _form(request, sheet), _trial_form(request, sheet))
    try:
        sheets.keep(request.tenant, request.user, sheet, _typed(request), timezone.now())
    except Invalid as refusal:
        return _refused(request, refusal)
    form, trial_form = RewardForm(request.tenant, request.POST), TrialForm(request.tenant, _models(), request.POST)
    match request.POST.get("do"):
        case "create":
            return _create(request, sheet, form, trial_form)
        case "run":
            return _run_draft(request, sheet, form, trial_form)
        case "check":
            checked = form.trial_grader() is not None
            return _draft_page(request, sheet, form, _trial_form(request, sheet), checked=checked, status=200 if checked else 422)
    return _kept(request, reverse("rewards:draft", args=[sheet.public_id]))


@never_cache
@tenant_page
@changed_by(Role.MEMBER)
def stored(request: HttpRequest, public_id: str) -> HttpResponse:
    """``do``: save, or run."""
    reward = get_object_or_404(request.tenant.rewards.select_related("created_by"), public_id=public_id)
    sheet = sheets.sheet_of(request.tenant, request.user, reward)
    if request.method != "POST":
        return _stored_page(request, reward, _trial_form(request, sheet))
    try:
        sheets.keep_for(request.tenant, request.user, reward, _typed(request), timezone.now())
    except Invalid as refusal:
        return _refused(request, refusal)
    if request.POST.get("do") != "run":
        return _kept(request, reverse("rewards:lab", args=[reward.public_id]))
    trial_form = TrialForm(request.tenant, _models(), request.POST)
    if run := _begin(request, reward.grader, trial_form, reward=reward):
        return _to_run("rewards:lab", reward.public_id, run)
    return _stored_page(request, reward, trial_form, status=422)


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def copy(request: HttpRequest, public_id: str) -> HttpResponse:
    """A draft that begins as this reward is; the reward itself never changes."""
    reward = get_object_or_404(request.tenant.rewards, public_id=public_id)
    try:
        sheet = sheets.new_draft(request.tenant, request.user, form_values.fields_of(request.tenant, reward), timezone.now())
    except form_values.NotInForm as error:
        messages.error(request, f"This reward cannot be changed here: {error}. Make the copy with the API.")
        return redirect("rewards:lab", reward.public_id)
    except Invalid as refusal:
        return _refused(request, refusal)
    return redirect("rewards:draft", sheet.public_id)


@require_POST
@tenant_page
def discard(request: HttpRequest, sheet_id: str) -> HttpResponse:
    sheets.discard(request.tenant, request.user, get_object_or_404(sheets.drafts_of(request.tenant, request.user), public_id=sheet_id))
    messages.success(request, "The draft is discarded.")
    return redirect("rewards:list")


@never_cache
@require_safe
@tenant_page
def run(request: HttpRequest, run_id: str) -> HttpResponse:
    """A run's fragment. ``part=progress`` is what the page asks for again and again; at the end it becomes the whole."""
    found = get_object_or_404(request.tenant.lab_runs.select_related("tenant", "reward", "sheet"), public_id=run_id)
    lab.wake(found, timezone.now())
    if request.GET.get("part") == "progress" and found.is_open:
        return render(request, "rewards/run_progress.html", {"run": found})
    response = render(request, "rewards/run.html", run_context(found, request))
    if request.GET.get("part") == "progress":
        response["HX-Retarget"], response["HX-Reswap"] = "#run", "outerHTML"
    return response


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def stop(request: HttpRequest, run_id: str) -> HttpResponse:
    found = get_object_or_404(request.tenant.lab_runs.select_related("reward", "sheet"), public_id=run_id)
    lab.stop_run(request.tenant, request.user, found, timezone.now())
    if request.headers.get("HX-Request"):
        return render(request, "rewards/run.html", run_context(found, request))
    if found.reward is not None:
        return _to_run("rewards:lab", found.reward.public_id, found)
    return _to_run("rewards:draft", found.sheet.public_id, found) if found.sheet else redirect("rewards:list")


def begin_draft(request: HttpRequest) -> HttpResponse:
    """From the form of a new reward: 201 with the draft's address for the script, else the draft's page."""
    try:
        sheet = sheets.new_draft(request.tenant, request.user, _typed(request), timezone.now())
    except Invalid as refusal:
        return _refused(request, refusal)
    where = reverse("rewards:draft", args=[sheet.public_id])
    return HttpResponse(status=201, headers={"Location": where}) if _by_script(request) else redirect(where)


def _create(request: HttpRequest, sheet: Sheet, form: RewardForm, trial_form: TrialForm) -> HttpResponse:
    if form.is_valid():
        try:
            reward = sheets.become_reward(request.tenant, request.user, sheet, form.cleaned_data["name"], form.grader())
            return redirect("rewards:detail", reward.public_id)
        except Invalid as refusal:
            form.refuse(refusal.problems)
    return _draft_page(request, sheet, form, _trial_form(request, sheet), status=422)


def _run_draft(request: HttpRequest, sheet: Sheet, form: RewardForm, trial_form: TrialForm) -> HttpResponse:
    grader = form.trial_grader()
    if grader is not None and (begun := _begin(request, grader, trial_form, sheet=sheet)):
        return _to_run("rewards:draft", sheet.public_id, begun)
    return _draft_page(request, sheet, form, trial_form, status=422)


def _begin(request: HttpRequest, grader: dict[str, Any], form: TrialForm, **of: Any) -> LabRun | None:
    trial = form.trial()
    if trial is None:
        return None
    try:
        return lab.begin_run(request.tenant, request.user, grader, trial, timezone.now(), **of)
    except Invalid as refusal:
        form.refuse(refusal.problems)
        return None


def _draft_page(
    request: HttpRequest, sheet: Sheet, form: RewardForm, trial_form: TrialForm, *, checked: bool = False, status: int = 200
) -> HttpResponse:
    context = {"sheet": sheet, "form": form, "kinds": KINDS, "rules": rules(), "items": items_of(request.tenant), "checked": checked}
    return _page(request, "rewards/draft.html", sheet.lab_runs, {**context, "trial": trial_form}, status)


def _stored_page(request: HttpRequest, reward: Reward, trial_form: TrialForm, *, status: int = 200) -> HttpResponse:
    context = {"reward": reward, "kind": BY_TYPE[reward.kind], "facts": facts(reward.grader), "trial": trial_form}
    context |= {"probe_url": reverse("rewards:probe", args=[reward.public_id]), "sources": lab.sources_of(reward.grader)}
    return _page(request, "rewards/lab.html", reward.lab_runs, context, status)


def _page(request: HttpRequest, template: str, runs: Any, context: dict[str, Any], status: int) -> HttpResponse:
    """``runs``: those of the thing that the page is about; the one that the address names, or the latest, is shown. Beside a refusal
    (422) stands none: it would look like the result of what was refused.
    """
    latest = list(runs.select_related("tenant", "reward", "sheet")[:SHOWN_RUNS])
    shown = runs.filter(public_id=asked).first() if (asked := text(request, "run")) else None
    if asked and shown is None:
        left_out(request, "run", "There is no such run here (any more); the latest is shown.")
    shown = shown or (next(iter(latest), None) if status == 200 else None)
    if shown is not None:
        lab.wake(shown, timezone.now())
        context |= run_context(shown, request)
    may_change = role_in(request.tenant, request.user) != Role.VIEWER
    return render(request, template, {**context, "runs": latest, "may_change": may_change, "away": reach.of_models()}, status=status)


def _form(request: HttpRequest, sheet: Sheet) -> RewardForm:
    form = RewardForm(request.tenant)
    form.initial = {"signing_secret": secrets.token_urlsafe(32), **sheets.initial(form, sheet.fields)}
    return form


def _trial_form(request: HttpRequest, sheet: Sheet | None) -> TrialForm:
    form = TrialForm(request.tenant, _models())
    tried = {name: values for name, values in (sheet.fields if sheet else {}).items() if name.startswith("try-")}
    form.initial = {"item": json.dumps(next(iter(items_of(request.tenant).values())), indent=1, ensure_ascii=False)}
    form.initial |= sheets.initial(form, tried, prefix="try")
    return form


def _models() -> list[str]:
    return [info.name for info in catalog.known_models(timezone.now())]


def _typed(request: HttpRequest) -> dict[str, list[str]]:
    return dict(request.POST.lists())


def _kept(request: HttpRequest, where: str) -> HttpResponse:
    return HttpResponse(status=204) if _by_script(request) else redirect(where)


def _refused(request: HttpRequest, refusal: Invalid) -> HttpResponse:
    """What has no field: said to the script, or above the list."""
    text = refusal.problems[0][1]
    if _by_script(request):
        return HttpResponse(text, status=422, content_type="text/plain")
    messages.error(request, f"Not kept: {text}.")
    return redirect("rewards:list")


def _by_script(request: HttpRequest) -> bool:
    return request.headers.get("X-Requested-With") == "autosave"


def _to_run(name: str, public_id: str, begun: LabRun) -> HttpResponse:
    response = redirect(name, public_id)
    response["Location"] += f"?run={begun.public_id}#run"
    return response
