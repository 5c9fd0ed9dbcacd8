"""Several runs on one page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal.jobs import comparing
from portal.pages.access import tenant_page
from portal.query import choice

JOBS_OFFERED = 50


@never_cache
@require_safe
@tenant_page
def index(request: HttpRequest) -> HttpResponse:
    """``?job=…&job=…``: which, at most eight; ``&x=``: over what."""
    jobs = comparing.chosen(request.tenant, request.GET.getlist("job"))
    axis = choice(request, "x", comparing.AXES, "step", noun="axis")
    offered = [job for job in request.tenant.jobs.all()[:JOBS_OFFERED] if job not in jobs]
    context = {"jobs": jobs, "axis": axis, "axes": comparing.AXES, "offered": offered, "most": comparing.MOST_JOBS}
    if jobs:
        context |= {
            "styled": comparing.styled(jobs),
            "metrics": comparing.METRICS,
            "curves": comparing.curves(request.tenant, jobs),
            "differences": comparing.differences(jobs) if len(jobs) > 1 else [],
            "verdicts": comparing.verdicts(jobs),
        }
    return render(request, "jobs/compare.html", context)
