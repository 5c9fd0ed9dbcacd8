"""A job's versions in the browser: keep, delete, take along, go on from, and how each came to be."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal import gateway
from portal.errors import Invalid
from portal.jobs import bundle, checkpoints
from portal.jobs.models import Job
from portal.pages.access import changed_by, tenant_page
from portal.pages.deletion import mistyped, refused
from portal.query import paged
from tenants.models import Role

VERSIONS_PER_PAGE = 50


@never_cache
@require_safe
@tenant_page
def index(request: HttpRequest, public_id: str) -> HttpResponse:
    job = _job(request, public_id)
    page = paged(request, range(job.version), VERSIONS_PER_PAGE)
    last = job.version - (page.number - 1) * VERSIONS_PER_PAGE
    context = {
        "job": job,
        "lines": checkpoints.lines(job, max(1, last - VERSIONS_PER_PAGE + 1), last) if job.version else [],
        "gone": checkpoints.all_deleted(job),
        "lineage": bundle.lineage(job),
        "children": request.tenant.jobs.filter(spec__warm_start__job=job.public_id)[:20],
        "refused": refused(request, job.public_id),
        "number": page.number,
        "pages": page.paginator.num_pages,
    }
    return render(request, "jobs/checkpoints.html", context)


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def keep(request: HttpRequest, public_id: str, version: int) -> HttpResponse:
    job, kept = _job(request, public_id), request.POST.get("kept") == "1"
    words = f"Version {version} is kept: it cannot be deleted." if kept else f"Version {version} may be deleted again."
    return _act(request, job, lambda: checkpoints.keep(request.tenant, request.user, job, version, timezone.now(), kept=kept), words)


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def delete(request: HttpRequest, public_id: str, version: int) -> HttpResponse:
    job, typed = _job(request, public_id), request.POST.get("typed", "")
    words = f"Version {version} is deleted. It disappears here as soon as the engine's event arrives."
    return _act(request, job, lambda: checkpoints.delete(request.tenant, request.user, job, version, typed), words, part=version)


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def delete_all(request: HttpRequest, public_id: str) -> HttpResponse:
    job, typed = _job(request, public_id), request.POST.get("typed", "")
    words = "All versions and completions of this job are deleted. Its history stays."
    return _act(request, job, lambda: checkpoints.delete_all(request.tenant, request.user, job, typed), words)


@require_safe
@tenant_page
def reproduce(request: HttpRequest, public_id: str, version: int) -> HttpResponse:
    job = _job(request, public_id)
    if not 1 <= version <= job.version:
        raise Http404
    answer = JsonResponse(bundle.of(job, version), json_dumps_params={"indent": 2, "ensure_ascii": False})
    answer["Content-Disposition"] = f'attachment; filename="{job.public_id}-v{version}-reproducibility.json"'
    return answer


def _act(request: HttpRequest, job: Job, act: Callable[[], None], done: str, *, part: int | None = None) -> HttpResponse:
    """``part``: the version that is to go; None for all of them."""
    try:
        act()
    except Invalid as refusal:
        if mistyped(request, refusal, job.public_id, part or ""):
            number = 1 + (job.version - part) // VERSIONS_PER_PAGE if part else 1
            return redirect(f"{reverse('jobs:checkpoints', args=[job.public_id])}?page={number}")
        messages.error(request, "; ".join(text for _, text in refusal.problems).capitalize())
    except gateway.EngineDown:
        messages.error(request, "The engine does not answer just now, so nothing was deleted. Try again in a minute.")
    else:
        messages.success(request, done)
    return redirect("jobs:checkpoints", job.public_id)


def _job(request: HttpRequest, public_id: str) -> Job:
    return get_object_or_404(request.tenant.jobs.select_related("dataset", "reward", "tenant"), public_id=public_id)
