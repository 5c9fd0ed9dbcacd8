"""Jobs in the browser: the list, the form, the live run page, and the commands."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal import gateway, numbers
from portal.billing.costs import cost_of, with_cost
from portal.errors import Invalid
from portal.jobs import actions, catalog, checkpoints, environments, exports, forms, presets, reach, series, standstill, warm_start
from portal.jobs import evaluation as evaluations
from portal.jobs import overview as overviews
from portal.jobs.downloads import adapter_response
from portal.jobs.job_filter import SHOWS, JobFilter
from portal.jobs.listing import away_since, rows, standing_still
from portal.jobs.live import MAX_EVENTS, page_after, told
from portal.jobs.models import Job, State
from portal.pages.access import changed_by, maker_page, tenant_page, wants_json
from portal.query import choice, paged, whole
from tenants.access import require
from tenants.models import Role, Tenant

JOBS_PER_PAGE = 25
EVAL_ROWS_PER_PAGE = 25
EXACT_VERSIONS = 2000
FILTER_CHOICES = 200
CHANGE_WORDS = {"win": "Won", "loss": "Lost", "tie": "Same", "invalid": "Not graded"}
_BULK = {
    "stop": (actions.cancel_job, "asked to stop"),
    "archive": (actions.archive_job, "archived; they are under Archived"),
    "unarchive": (partial(actions.archive_job, archived=False), "back in the list"),
}


@never_cache
@require_safe
@tenant_page
def index(request: HttpRequest) -> HttpResponse:
    """With ``HX-Request`` only the table: the list refreshes itself from the same template."""
    wanted = JobFilter.of(request)
    jobs = with_cost(wanted.jobs(request.tenant).select_related("dataset", "created_by"))
    page = paged(request, jobs, JOBS_PER_PAGE)
    shown = rows(page.object_list)
    context = {"rows": shown, "page": page, "wanted": wanted, "query": wanted.address(), "now": timezone.now()}
    context |= {"away_since": away_since(shown), "standing_still": standing_still(shown)}
    if request.headers.get("HX-Request"):
        return render(request, "jobs/table.html", {**context, "selectable": True})
    return render(request, "jobs/list.html", {**context, "selectable": True, **_choices(request.tenant, wanted)})


@require_POST
@tenant_page
def bulk(request: HttpRequest) -> HttpResponse:
    """Stop, archive, unarchive or compare what is marked; each is done or says why not, and none stands in another's way."""
    if request.POST.get("do") != "compare":  # which changes nothing
        require(request.tenant, request.user, Role.MEMBER)
    act, done = _BULK.get(request.POST.get("do", ""), (None, ""))
    jobs = list(request.tenant.jobs.filter(public_id__in=request.POST.getlist("job")[:JOBS_PER_PAGE]))
    if jobs and request.POST.get("do") == "compare":
        return redirect(f"{reverse('jobs:compare')}?{urlencode({'job': [job.public_id for job in jobs]}, doseq=True)}")
    if act is None or not jobs:
        messages.warning(request, "Mark the jobs first, then say what to do with them.")
        return redirect(f"{reverse('jobs:list')}?{request.POST.get('back', '')[:500]}")
    count = 0
    for job in jobs:
        try:
            act(request.tenant, request.user, job, timezone.now())
            count += 1
        except Invalid as refusal:
            messages.error(request, f"{job.name}: {'; '.join(text for _, text in refusal.problems)}")
    if count:
        messages.success(request, f"{count} job{'s' if count != 1 else ''} {done}.")
    return redirect(f"{reverse('jobs:list')}?{request.POST.get('back', '')[:500]}")


@maker_page
def new(request: HttpRequest) -> HttpResponse:
    models = catalog.known_models(timezone.now())
    form = forms.JobForm(request.tenant, models, request.POST or None, initial=_initial(request))
    if form.is_bound and (job := _create(request, form)):
        return redirect("jobs:detail", job.public_id)
    context = {
        "form": form,
        "models": {model.name: model.model_dump() for model in models},
        "presets": [(preset, preset.obstacle(models)) for preset in presets.PRESETS],
        "chosen": choice(request, "preset", presets.KEYS, "" if form.is_bound or request.GET.get("from") else presets.PRESETS[0].key),
        "environments": environments.TYPES,
        "environment": form[environments.TYPE].value() or environments.TYPES[0][0],
        "values": {preset.key: preset.values for preset in presets.PRESETS},
        "away": reach.of_models(model.name for model in models),
    }
    return render(request, "jobs/new.html", context, status=422 if form.errors else 200)


@never_cache
@require_safe
@tenant_page
def detail(request: HttpRequest, public_id: str) -> HttpResponse:
    job = _job(request, public_id)
    origin = warm_start.origin(request.tenant, job.spec)
    context = {
        **cost_of(job),
        "run": _run(job, may_write=request.role != Role.VIEWER),
        "spec": job.spec,
        "completions": _completions(job.spec),
        "origin": origin,
    }
    return render(request, "jobs/detail.html", context)


@never_cache
@require_safe
@tenant_page
def evaluation(request: HttpRequest, public_id: str, version: str) -> HttpResponse:
    """What became of each held-out row since version 0."""
    job = _job(request, public_id)
    _a_version(version)
    change = choice(request, "show", evaluations.CHANGES, noun="change")
    number = max(1, whole(request, "page", 1))
    context: dict[str, Any] = {"job": job, "version": version, "show": change, "summary": evaluations.summary(job)}
    try:
        found = evaluations.rows(job, version, change=change, offset=(number - 1) * EVAL_ROWS_PER_PAGE, limit=EVAL_ROWS_PER_PAGE)
    except gateway.EngineDown:
        return render(request, "jobs/evaluation.html", {**context, "away": True, "away_since": reach.of_engine(job)}, status=503)
    except gateway.EngineRefused as error:
        if error.status != 404:
            raise
        return render(request, "jobs/evaluation.html", {**context, "missing": True, "gone": checkpoints.completions_gone(job)}, status=404)
    pages = -(-found["total"] // EVAL_ROWS_PER_PAGE)
    for row in found["rows"]:
        row |= {"sides": (row["before"], row["after"]), "word": CHANGE_WORDS[row["change"]]}
    context |= {"found": found, "number": number, "pages": pages, "previous": number - 1, "next": number + 1}
    return render(request, "jobs/evaluation.html", context)


@never_cache
@require_safe
@tenant_page
def events(request: HttpRequest, public_id: str) -> HttpResponse:
    """History for the run page, and what it fetches after a gap. ``job`` tells of an ending that no event reported."""
    job = _job(request, public_id)
    after = numbers.whole(request.GET.get("after", "0"))
    if after is None:
        return JsonResponse(
            {"error": {"message": "after must be an event number", "type": "invalid", "param": "after", "code": "invalid"}}, status=400
        )
    page = page_after(job, after)
    return told({**page, "more": len(page["events"]) == MAX_EVENTS, "job": overviews.ending(job)})


@never_cache
@require_safe
@tenant_page
def overview(request: HttpRequest, public_id: str) -> HttpResponse:
    """What the run page begins with; from ``last`` on it follows by the events."""
    return told(overviews.overview(_job(request, public_id)))


@never_cache
@require_safe
@tenant_page
def figures(request: HttpRequest, public_id: str) -> HttpResponse:
    """Exact figures of versions ``from`` to ``to``, at most ``EXACT_VERSIONS`` at once as JSON; all of them as ``format=csv``."""
    job = _job(request, public_id)
    first, last = whole(request, "from", 1), whole(request, "to", job.version)
    if request.GET.get("format") == "csv":
        return exports.figures_csv(job, first, last)
    return JsonResponse(series.exact(job, first, min(last, first + EXACT_VERSIONS - 1)))


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def cancel(request: HttpRequest, public_id: str) -> HttpResponse:
    return _command(request, public_id, actions.cancel_job, "The job is asked to stop.")


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def pause(request: HttpRequest, public_id: str) -> HttpResponse:
    return _command(request, public_id, actions.pause_job, "The job pauses after the step that is running.")


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def resume(request: HttpRequest, public_id: str) -> HttpResponse:
    return _command(request, public_id, actions.resume_job, "The job takes its place in the queue again.")


@require_safe
@tenant_page
def adapter(request: HttpRequest, public_id: str, version: str) -> HttpResponse:
    """The engine's archive, passed through."""
    job = _job(request, public_id)
    _a_version(version)
    try:
        return adapter_response(request, job, version)
    except gateway.EngineRefused as error:
        if error.status == 404:
            raise Http404 from error
        messages.error(request, f"The adapter could not be fetched: {error}")
    except gateway.EngineDown:
        messages.error(request, "The engine does not answer just now, so the adapter cannot be fetched. Try again in a minute.")
    return redirect("jobs:detail", job.public_id)


def _choices(tenant: Tenant, wanted: JobFilter) -> dict[str, Any]:
    """What the list can be narrowed to, and its tabs with their addresses."""
    people = tenant.memberships.order_by("user__email").values_list("user__email", flat=True)[:FILTER_CHOICES]
    return {
        "tabs": [(key, word, wanted.address(show=key)) for key, word in SHOWS.items()],
        "states": State.choices,
        "datasets": tenant.datasets.values_list("public_id", "name")[:FILTER_CHOICES],
        "people": people,
    }


def _job(request: HttpRequest, public_id: str) -> Job:
    return get_object_or_404(request.tenant.jobs.select_related("dataset", "reward", "created_by"), public_id=public_id)


def _a_version(text: str) -> None:
    if text != "latest" and numbers.whole(text) is None:
        raise Http404


def _create(request: HttpRequest, form: forms.JobForm) -> Job | None:
    """What could not be read keeps a form from making a job, but not from hearing what the door says of the rest: all faults at once."""
    readable = form.is_valid()
    try:
        if readable:
            return actions.create_job(request.tenant, request.user, form.raw(), timezone.now())
        actions.check_job(request.tenant, request.user, form.raw(), timezone.now())
    except Invalid as refusal:
        form.refuse(refusal.problems)
    return None


def _command(request: HttpRequest, public_id: str, act: Any, done: str) -> HttpResponse:
    """Our script gets an empty 202 and waits for the event; a form without script gets the page with a message."""
    job = _job(request, public_id)
    try:
        act(request.tenant, request.user, job, timezone.now())
    except Invalid as refusal:
        message = "; ".join(text for _, text in refusal.problems)
        if wants_json(request):
            return JsonResponse({"error": {"message": message, "type": "conflict", "param": None, "code": refusal.code}}, status=409)
        messages.error(request, message.capitalize())
    else:
        if wants_json(request):
            return HttpResponse(status=202)
        messages.success(request, done)
    return redirect("jobs:detail", job.public_id)


def _initial(request: HttpRequest) -> dict[str, Any]:
    """``?from=job_…`` copies one of the tenant's jobs, with ``&version=`` the new one begins where that one had come to; ``?dataset=`` and
    ``?reward=`` choose, ``?preset=`` fills in.
    """
    tenant, query = request.tenant, request.GET
    chosen = {key: query[key] for key in ("dataset", "reward") if key in query}
    if "from" not in query:
        return {**presets.find(query.get("preset")).values, **chosen}
    job = get_object_or_404(tenant.jobs.select_related("dataset", "reward"), public_id=query["from"])
    copied = {"name": f"{job.name} (copy)"[:90], "dataset": job.dataset.public_id, "reward": job.reward.public_id}
    if (version := whole(request, "version", -1)) >= 0:
        copied |= {"name": f"{job.name[:80]} from v{version}", "warm_start.job": job.public_id, "warm_start.version": version}
    return {**forms.initial(job.spec, tenant), **copied, **chosen}


def _run(job: Job, *, may_write: bool) -> dict[str, Any]:
    """What the run page's script starts from; everything else comes as events."""
    away, halt = reach.since(job), standstill.of_job(job)
    return {
        "id": job.public_id,
        "steps": job.steps,
        "state": job.state,
        "stopping": job.is_stopping,
        "submitted_at": job.submitted_at.isoformat(),
        "engine_away_since": away and away.isoformat(),
        "engine_restarting": halt and halt.as_json(),
        "events_url": reverse("jobs:events", args=[job.public_id]),
        "overview_url": reverse("jobs:overview", args=[job.public_id]),
        "figures_url": reverse("jobs:figures", args=[job.public_id]),
        "rollouts_url": reverse("jobs:rollouts", args=[job.public_id]),
        "socket_path": f"/ws/jobs/{job.public_id}/",
        "adapter_url": reverse("jobs:adapter", args=[job.public_id, "0"]),
        "evaluation_url": reverse("jobs:evaluation", args=[job.public_id, "0"]),
        "continue_url": f"{reverse('jobs:new')}?from={job.public_id}&version=" if may_write else "",
        "playground_url": f"{reverse('playground:job', args=[job.public_id])}?step=",
        "eval_rows": min(job.dataset.eval_rows or 0, job.spec["eval"]["max_rows"]),
    }


def _completions(spec: dict[str, Any]) -> int:
    return spec["rollout"]["prompts_per_step"] * spec["rollout"]["group_size"]
