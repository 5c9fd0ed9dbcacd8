"""The start page, and switching between organisations."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.console.access import may_operate
from portal.jobs import catalog, presets
from portal.jobs.listing import away_since, rows, standing_still
from portal.jobs.models import OPEN_STATES
from portal.pages.access import changed_by, person_page, tenant_page, wants_json
from portal.pages.sample import KNOWN_TASKS, SAMPLES, ensure_sample
from tenants.middleware import choose
from tenants.models import Role, Tenant


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstStep:
    done: bool
    title: str
    why: str
    action: str
    url: str


@never_cache
@require_safe
@person_page
def home(request: HttpRequest) -> HttpResponse:
    """Who belongs to no organisation, as the first operator does, reads what can be done about that."""
    if request.tenant is None and not wants_json(request) and not request.headers.get("HX-Request"):
        return render(request, "pages/no_organisation.html", {"may_operate": may_operate(request.user)})
    return overview(request)


@tenant_page
def overview(request: HttpRequest) -> HttpResponse:
    """With ``HX-Request`` only the latest jobs: they refresh themselves from the same template."""
    tenant = request.tenant
    jobs = rows(tenant.jobs.select_related("dataset")[:6])
    latest = {"jobs": jobs, "away_since": away_since(jobs), "standing_still": standing_still(jobs)}
    if request.headers.get("HX-Request"):
        return render(request, "pages/latest.html", latest)
    steps = first_steps(tenant)
    counts = {
        "running": tenant.jobs.filter(state__in=OPEN_STATES).count(),
        "datasets": tenant.datasets.count(),
        "rewards": tenant.rewards.count(),
    }
    context = {
        **latest,
        "steps": steps,
        "todo": next((step for step in steps if not step.done), None),
        "begun": all(step.done for step in steps[:3]),
        "counts": counts,
    }
    return render(request, "pages/home.html", context)


@require_POST
@person_page
def switch(request: HttpRequest, public_id: str) -> HttpResponse:
    choose(request, get_object_or_404(request.user.tenants, public_id=public_id))
    return redirect("home")


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def sample(request: HttpRequest) -> HttpResponse:
    """``sample``: one of ``SAMPLES``. Leads to a job form that only has to be sent."""
    chosen = SAMPLES.get(request.POST.get("sample", ""), SAMPLES["additions"])
    dataset, reward = ensure_sample(request.tenant, request.user, chosen)
    return redirect(f"{reverse('jobs:new')}?dataset={dataset.public_id}&reward={reward.public_id}&preset={chosen.preset}")


@require_safe
@tenant_page
def gallery(request: HttpRequest) -> HttpResponse:
    """Tasks to begin with. What no model here can run says so."""
    models = catalog.known_models(timezone.now())
    samples = [(key, one, presets.find(one.preset).obstacle(models)) for key, one in SAMPLES.items()]
    known = [(one, presets.find(one.preset).obstacle(models)) for one in KNOWN_TASKS]
    return render(request, "pages/gallery.html", {"samples": samples, "known": known})


def first_steps(tenant: Tenant) -> list[FirstStep]:
    """From nothing to a learning job, in order."""
    return [
        FirstStep(
            done=tenant.datasets.exists(),
            title="Bring a dataset",
            why="JSONL with a prompt a line and the right answer beside it. The whole file is checked at once.",
            action="Upload a dataset",
            url=reverse("datasets:new"),
        ),
        FirstStep(
            done=tenant.rewards.exists(),
            title="Say what a good answer is",
            why="A reward grades each completion: an exact match, a number within a tolerance, or mathematical equality.",
            action="Create a reward",
            url=reverse("rewards:new"),
        ),
        FirstStep(
            done=tenant.jobs.exists(),
            title="Start a job and watch it learn",
            why="Pick a preset. The reward curve, the step times and every event appear live.",
            action="Start a job",
            url=reverse("jobs:new"),
        ),
        FirstStep(
            done=tenant.jobs.filter(version__gt=0, state="succeeded").exists(),
            title="Download the adapter",
            why="Each committed version is a LoRA adapter in PEFT's layout, from the job's page.",
            action="See the jobs",
            url=reverse("jobs:list"),
        ),
    ]
