"""Datasets in the browser: upload, the report of a refused file, and what is in an accepted one."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from portal.datasets.actions import DatasetInvalid, create_dataset
from portal.datasets.forms import UploadForm
from portal.datasets.models import Dataset
from portal.datasets.preview import preview
from portal.errors import Invalid
from portal.pages.access import tenant_page

DATASETS_PER_PAGE = 50


@require_safe
@tenant_page
def index(request: HttpRequest) -> HttpResponse:
    page = Paginator(request.tenant.datasets.select_related("created_by"), DATASETS_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "datasets/list.html", {"page": page})


@tenant_page
def new(request: HttpRequest) -> HttpResponse:
    """The upload script gets 201 with the new address, or 422 with the problems' fragment; a form without script gets pages."""
    form = UploadForm(request.POST or None, request.FILES or None)
    context = {"form": form, "report": None}
    if form.is_valid() and (dataset := _create(request, form, context)):
        return _made(request, dataset)
    by_script = request.headers.get("X-Requested-With") == "upload"
    return render(request, "datasets/problems.html" if by_script else "datasets/new.html", context, status=422 if form.errors else 200)


@require_safe
@tenant_page
def detail(request: HttpRequest, public_id: str) -> HttpResponse:
    dataset = get_object_or_404(request.tenant.datasets.select_related("created_by"), public_id=public_id)
    context = {"dataset": dataset, "preview": preview(dataset), "jobs": dataset.jobs.all()[:10]}
    return render(request, "datasets/detail.html", context)


def _create(request: HttpRequest, form: UploadForm, context: dict) -> Dataset | None:
    share = form.cleaned_data["eval_share"]
    try:
        return create_dataset(request.tenant, request.user, form.named(), form.cleaned_data["file"], eval_share=share)
    except DatasetInvalid as refusal:
        context["report"] = refusal.report
        form.add_error("file", "Nothing was stored. Mend what is listed and upload the file again.")
    except Invalid as refusal:
        for field, message in refusal.problems:
            form.add_error(field if field in form.fields else None, message)
    return None


def _made(request: HttpRequest, dataset: Dataset) -> HttpResponse:
    if request.headers.get("X-Requested-With") == "upload":
        return HttpResponse(status=201, headers={"Location": reverse("datasets:detail", args=[dataset.public_id])})
    return redirect("datasets:detail", dataset.public_id)
