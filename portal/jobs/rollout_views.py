"""Completions in the browser: a step's groups, one completion, and one prompt at two steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal import gateway
from portal.jobs import checkpoints, engines, reach, rollouts
from portal.jobs.models import Job
from portal.pages.access import tenant_page
from portal.query import choice


@never_cache
@require_safe
@tenant_page
def index(request: HttpRequest, public_id: str) -> HttpResponse:
    job = _job(request, public_id)
    wanted = rollouts.Filter.of(request)
    context: dict[str, Any] = {"job": job, "wanted": wanted, "endings": rollouts.ENDINGS, "kept": rollouts.KEPT}
    context |= rollouts.colouring(request)
    try:
        found = rollouts.page(job, wanted)
    except gateway.EngineDown:
        return render(request, "jobs/rollouts.html", {**context, **_away(job)}, status=503)
    except gateway.EngineRefused as error:
        if error.status != 404:
            raise
        return render(request, "jobs/rollouts.html", {**context, "missing": True, "gone": checkpoints.completions_gone(job)})
    return render(request, "jobs/rollouts.html", {**context, "found": found, **_known(found["groups"]), **_links(wanted, found, job)})


@never_cache
@require_safe
@tenant_page
def one(request: HttpRequest, public_id: str, version: int, row: int, sample: int) -> HttpResponse:
    job, colours = _job(request, public_id), rollouts.colouring(request)
    try:
        group = rollouts.one(job, version, row, sample, colours["colour"])
        versions = engines.of(job).row_versions(job.public_id, row) if group else []
    except gateway.EngineDown:
        return render(request, "jobs/completion.html", {"job": job, **_away(job)}, status=503)
    except gateway.EngineRefused as error:
        raise Http404 from error
    if group is None:
        raise Http404
    others = [other for other in versions if other != version]
    context = {"job": job, "group": group, "completion": group["one"], "others": others[-20:]}
    return render(request, "jobs/completion.html", {**context, **colours, **_known([{"completions": [group["one"]]}])})


@never_cache
@require_safe
@tenant_page
def compare(request: HttpRequest, public_id: str, row: int) -> HttpResponse:
    """``?a=`` and ``?b=``: the two versions; by default the first and the last that this prompt was sampled from."""
    job, colours = _job(request, public_id), rollouts.colouring(request)
    try:
        versions = engines.of(job).row_versions(job.public_id, row)
        if not versions:
            raise Http404
        before, after = _version(request, "a", versions, versions[0]), _version(request, "b", versions, versions[-1])
        found = rollouts.compared(job, row, before, after, colours["colour"])
    except gateway.EngineDown:
        return render(request, "jobs/rollout_diff.html", {"job": job, "row": row, **_away(job)}, status=503)
    except gateway.EngineRefused as error:
        raise Http404 from error
    context = {"job": job, "row": row, "versions": versions, "before": before, "after": after, **found}
    return render(request, "jobs/rollout_diff.html", {**context, **colours, **_known(found["sides"])})


def _version(request: HttpRequest, name: str, versions: list[int], otherwise: int) -> int:
    return int(choice(request, name, {str(version) for version in versions}, str(otherwise), noun="version of this prompt"))


def _known(groups: Iterable[dict[str, Any] | None]) -> dict[str, bool]:
    """For the legend: whether there is anything to colour, and whether it is known how far the trainer differed."""
    groups = list(groups)
    return {"coloured": any(groups), "mismatch_known": rollouts.mismatch_known(groups)}


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


def _away(job: Job) -> dict[str, Any]:
    return {"away": True, "away_since": reach.of_engine(job)}


def _job(request: HttpRequest, public_id: str) -> Job:
    return get_object_or_404(request.tenant.jobs.select_related("dataset", "reward"), public_id=public_id)
