"""Completions in the browser: a step's groups, one completion, and one prompt at two steps."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal import gateway
from portal.jobs import checkpoints, engines, rollouts
from portal.jobs.models import Job
from portal.pages.access import tenant_page
from portal.query import whole


@never_cache
@require_safe
@tenant_page
def index(request: HttpRequest, public_id: str) -> HttpResponse:
    job = _job(request, public_id)
    wanted = rollouts.Filter.of(request)
    context: dict[str, Any] = {"job": job, "wanted": wanted, "endings": rollouts.ENDINGS, "kept": rollouts.KEPT}
    context["colours"] = [(key, word, wanted.address(colour=key, page=wanted.page)) for key, word in rollouts.COLOURS.items()]
    try:
        found = rollouts.page(job, wanted)
    except gateway.EngineDown:
        return render(request, "jobs/rollouts.html", {**context, "away": True}, status=503)
    except gateway.EngineRefused as error:
        if error.status != 404:
            raise
        return render(request, "jobs/rollouts.html", {**context, "missing": True, "gone": checkpoints.completions_gone(job)})
    return render(request, "jobs/rollouts.html", {**context, "found": found, **_links(wanted, found, job)})


@never_cache
@require_safe
@tenant_page
def one(request: HttpRequest, public_id: str, version: int, row: int, sample: int) -> HttpResponse:
    job = _job(request, public_id)
    try:
        group = rollouts.one(job, version, row, sample)
        versions = engines.of(job).row_versions(job.public_id, row) if group else []
    except gateway.EngineDown:
        return render(request, "jobs/completion.html", {"job": job, "away": True}, status=503)
    except gateway.EngineRefused as error:
        raise Http404 from error
    if group is None:
        raise Http404
    others = [other for other in versions if other != version]
    return render(request, "jobs/completion.html", {"job": job, "group": group, "completion": group["one"], "others": others[-20:]})


@never_cache
@require_safe
@tenant_page
def compare(request: HttpRequest, public_id: str, row: int) -> HttpResponse:
    """``?a=`` and ``?b=``: the two versions; by default the first and the last that this prompt was sampled from."""
    job = _job(request, public_id)
    try:
        versions = engines.of(job).row_versions(job.public_id, row)
        if not versions:
            raise Http404
        before, after = whole(request, "a", versions[0]), whole(request, "b", versions[-1])
        found = rollouts.compared(job, row, before, after)
    except gateway.EngineDown:
        return render(request, "jobs/rollout_diff.html", {"job": job, "row": row, "away": True}, status=503)
    except gateway.EngineRefused as error:
        raise Http404 from error
    context = {"job": job, "row": row, "versions": versions, "before": before, "after": after, **found}
    return render(request, "jobs/rollout_diff.html", context)


def _links(wanted: rollouts.Filter, found: dict[str, Any], job: Job) -> dict[str, Any]:
    if wanted.every:
        older = found["next"]
        return {"older": None if older is None else wanted.address(version=older)}
    pages = -(-found["total"] // rollouts.GROUPS_PER_PAGE)
    version = found["version"]
    return {
        "pages": pages,
        "previous": wanted.address(page=wanted.page - 1) if wanted.page > 1 else None,
        "next": wanted.address(page=wanted.page + 1) if wanted.page < pages else None,
        "step_before": wanted.address(version=version - 1) if version > 0 else None,
        "step_after": wanted.address(version=version + 1) if version < job.version else None,
    }


def _job(request: HttpRequest, public_id: str) -> Job:
    return get_object_or_404(request.tenant.jobs.select_related("dataset", "reward"), public_id=public_id)
