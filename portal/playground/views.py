"""The playground: one prompt, answered by the base model and by two steps of a job side by side, each answer with its reward.

Answers stream from ``/v1/chat/completions``, as any client's do; this page adds rows of the job's dataset, and the job's own grader.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.datasets.preview import raw_page
from portal.errors import Invalid
from portal.gateway import EngineDown, EngineRefused
from portal.jobs import catalog, engines, evaluation, reach
from portal.jobs.models import Job
from portal.openai.graders import grade as graded
from portal.pages.access import changed_by, tenant_page
from portal.query import whole
from tenants.models import Role

MAX_CHOICES = 100
MAX_BODY_BYTES = 256 * 1024


@never_cache
@require_safe
@tenant_page
def index(request: HttpRequest) -> HttpResponse:
    """The newest job that has a step; without one, the base model alone."""
    if newest := request.tenant.jobs.filter(version__gte=1).order_by("-id").first():
        return redirect("playground:job", newest.public_id)
    names = [info.name for info in catalog.known_models(timezone.now())]
    model = settings.DEFAULT_MODEL if settings.DEFAULT_MODEL in names else next(iter(names), "")
    return render(request, "playground/index.html", {"base_model": model, **_defaults(request, model)})


@never_cache
@require_safe
@tenant_page
def job(request: HttpRequest, public_id: str) -> HttpResponse:
    """``?step=`` and ``?against=`` choose the two steps; else the best (or the latest) and the first."""
    found = get_object_or_404(request.tenant.jobs.select_related("dataset", "reward"), public_id=public_id)
    best = evaluation.summary(found)["best"]
    first = _step(request, "step", found, best or found.version)
    second = _step(request, "against", found, 1 if first != 1 and found.version else None)
    others = request.tenant.jobs.filter(version__gte=1).order_by("-id").only("public_id", "name", "version")[:MAX_CHOICES]
    context = {
        "job": found,
        "base_model": found.base_model,
        "steps": [first, second],
        "best": best,
        "jobs": others,
        **_defaults(request, found.base_model),
        **found.spec["rollout"],
    }
    return render(request, "playground/index.html", context)


@never_cache
@require_safe
@tenant_page
def row(request: HttpRequest, public_id: str) -> HttpResponse:
    """Any row of the job's dataset, a held-out one where there are some."""
    dataset = get_object_or_404(request.tenant.jobs.select_related("dataset"), public_id=public_id).dataset
    split = "eval" if dataset.eval_rows else "train"
    start = secrets.randbelow(dataset.rows)
    found = raw_page(dataset, split, start=start, limit=1).rows or raw_page(dataset, split, start=0, limit=1).rows
    return JsonResponse({"split": split, **found[0]})


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def grade(request: HttpRequest, public_id: str) -> HttpResponse:
    """What the job's reward gives for an answer: {"text", "item"} → {"reward", "components", "error"}."""
    found = get_object_or_404(request.tenant.jobs, public_id=public_id)
    try:
        text, item = _case(request)
        outcome = graded(engines.of(found), request.tenant, request.user, found.spec["grader"], text, item)
    except Invalid as refused:
        return _refused(400, str(refused))
    except EngineRefused as refused:
        return _refused(400, str(refused))
    except EngineDown:
        return _refused(503, "The engine does not answer at the moment.")
    return JsonResponse({name: outcome[name] for name in ("reward", "components", "error")})


def _case(request: HttpRequest) -> tuple[str, dict[str, Any]]:
    """Raises ``Invalid``."""
    body = request.read(MAX_BODY_BYTES + 1)
    try:
        asked = json.loads(body) if len(body) <= MAX_BODY_BYTES else None
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or not isinstance(asked.get("text"), str) or not isinstance(asked.get("item"), dict):
        raise Invalid([("body", f"must be JSON with text and item, of at most {MAX_BODY_BYTES:,} bytes")])
    return asked["text"], asked["item"]


def _step(request: HttpRequest, name: str, job: Job, otherwise: int | None) -> int | None:
    """An empty one is none: nobody is asked in that column."""
    if request.GET.get(name) == "":
        return None
    asked = whole(request, name, -1, most=job.version)
    return otherwise if asked < 0 else asked


def _defaults(request: HttpRequest, model: str) -> dict[str, Any]:
    return {
        "away": reach.of_models([model], needs="sampler"),
        "may_ask": request.role != Role.VIEWER,
        "temperature": 1.0,
        "max_new_tokens": 256,
    }


def _refused(status: int, message: str) -> JsonResponse:
    return JsonResponse({"error": {"message": message}}, status=status)
