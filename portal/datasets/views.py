"""Datasets in the browser: what there is, and what is in one."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from portal.datasets import measure, removal, reports
from portal.datasets.models import Dataset
from portal.datasets.preview import MAX_NEEDLE, page
from portal.jobs import catalog
from portal.numbers import MOST
from portal.pages.access import changed_by, tenant_page
from portal.pages.deletion import delete_typed, refused
from portal.query import choice, paged, text, whole
from tenants.models import Role

DATASETS_PER_PAGE = 50
SPLITS = ("train", "eval")


@require_safe
@tenant_page
def index(request: HttpRequest) -> HttpResponse:
    found = paged(request, request.tenant.datasets.select_related("created_by"), DATASETS_PER_PAGE)
    waiting = request.tenant.uploads.filter(stored_as="")[:20]
    return render(request, "datasets/list.html", {"page": found, "uploads": waiting, "now": timezone.now()})


@require_safe
@tenant_page
def detail(request: HttpRequest, public_id: str) -> HttpResponse:
    dataset = _dataset(request, public_id)
    split = choice(request, "split", SPLITS if dataset.eval_rows else SPLITS[:1], "train", noun="part of this dataset")
    needle = text(request, "q", MAX_NEEDLE)
    start = whole(request, "from", 0, most=MOST)
    models = [info.name for info in catalog.known_models(timezone.now())]
    context = {
        "dataset": dataset,
        "split": split,
        "q": needle,
        "start": start,
        "rows": page(dataset, split, start=start, needle=needle),
        "versions": request.tenant.datasets.filter(series=dataset.series) if dataset.series else [],
        "jobs": dataset.jobs.all()[:10],
        "stays": removal.in_use(dataset),
        "refused": refused(request, dataset.public_id),
        "models": models,
        "lengths": _lengths(dataset, choice(request, "model", {*models, *dataset.lengths})),
    }
    return render(request, "datasets/detail.html", context)


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def lengths(request: HttpRequest, public_id: str) -> HttpResponse:
    """Measure the prompts for another of the engine's models."""
    dataset = _dataset(request, public_id)
    model = request.POST.get("model", "")
    if model not in {info.name for info in catalog.known_models(timezone.now())}:
        raise Http404
    measure.begin(dataset, model, timezone.now())
    response = redirect("datasets:detail", dataset.public_id)
    response["Location"] += f"?model={model}#lengths"
    return response


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def delete(request: HttpRequest, public_id: str) -> HttpResponse:
    return delete_typed(request, _dataset(request, public_id), removal.delete_dataset, pages="datasets")


@require_safe
@tenant_page
def report(request: HttpRequest, public_id: str, kind: str) -> HttpResponse:
    dataset = _dataset(request, public_id)
    return {"json": reports.as_json, "csv": reports.as_csv}[kind](dataset.report, dataset.public_id)


def _dataset(request: HttpRequest, public_id: str) -> Dataset:
    return get_object_or_404(request.tenant.datasets.select_related("created_by"), public_id=public_id)


def _lengths(dataset: Dataset, wanted: str) -> dict[str, Any] | None:
    """The figures to show: of the model asked for, else of any that was measured."""
    return dataset.lengths.get(wanted) or next(iter(dataset.lengths.values()), None)
