"""From a file to a dataset in the browser: uploading, generating, importing, and the page of what is not stored yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.datasets import forms, origins, reports, uploads
from portal.datasets.mapping import BadMapping, Mapping, apply, parse
from portal.datasets.models import Upload
from portal.datasets.preview import PreviewRow, shown
from portal.datasets.rows import BadLine
from portal.datasets.sources import Findings, Unreadable, open_source
from portal.errors import Invalid
from portal.jobs import catalog
from portal.pages.access import changed_by, maker_page, tenant_page
from portal.query import choice
from tenants.models import Role

SHOWN_ROWS = 5
SAMPLED_ROWS = 50


@maker_page
def new(request: HttpRequest) -> HttpResponse:
    """The upload script gets 201 with the next address, or 422 with the problems' fragment; a form without script gets pages."""
    form = forms.UploadForm(request.POST or None, request.FILES or None, models=_models(), initial=_initial(request))
    context = {"form": form, "renewed": _renewed(request)}
    by_script = request.headers.get("X-Requested-With") == "upload"
    if form.is_valid() and (upload := _upload(request, form)):
        where = _next(upload)
        return HttpResponse(status=201, headers={"Location": where}) if by_script else redirect(where)
    return render(request, "datasets/problems.html" if by_script else "datasets/new.html", context, status=422 if form.errors else 200)


@maker_page
def generate(request: HttpRequest) -> HttpResponse:
    """Word problems of our own, or a task of reasoning-gym where it is installed."""
    chosen = "gym" if request.POST.get("with") == "gym" else choice(request, "with", ("words", "gym"), "words", noun="generator")
    tasks = origins.gym_tasks() if chosen == "gym" else []
    posted = request.POST or None
    form = forms.GymForm(posted, models=_models(), tasks=tasks) if chosen == "gym" else forms.WordsForm(posted, models=_models())
    if form.is_valid() and (upload := _from_origin(request, form)):
        return redirect(_next(upload))
    context = {"form": form, "chosen": chosen, "gym": origins.gym_is_here(), "tasks": tasks}
    return render(request, "datasets/generate.html", context, status=422 if form.errors else 200)


@maker_page
def from_hub(request: HttpRequest) -> HttpResponse:
    form = forms.HubForm(request.POST or None, models=_models(), initial={"hub_name": request.GET.get("name", "")[:200]})
    if form.is_valid() and (upload := _from_origin(request, form)):
        return redirect(_next(upload))
    return render(request, "datasets/hub.html", {"form": form}, status=422 if form.errors else 200)


@never_cache
@tenant_page
@changed_by(Role.MEMBER)
def upload(request: HttpRequest, upload_id: str) -> HttpResponse:
    """What was found, how the columns are read, and what to do next."""
    found = _found(request, upload_id)
    if found.stored_as:
        return redirect("datasets:detail", found.stored_as)
    if found.is_silent(timezone.now()):
        uploads.start(found, timezone.now())
    samples, columns = _samples(found)
    form = forms.ReadingForm(
        request.POST or None,
        request.FILES or None,
        models=_models(),
        columns=columns,
        initial=_reading(found),
        use_required_attribute=False,
    )
    if form.is_valid() and _change(request, found, form):
        return redirect(_next(found))
    mapping = _mapping(found)
    context = {"upload": found, "form": form, "report": found.report, "again": forms.UploadForm(initial=_again(found), auto_id="again_%s")}
    context |= {"rows": _preview(samples, mapping), "columns": columns, "lengths": found.report.get("lengths")}
    return render(request, "datasets/upload.html", context, status=422 if form.errors else 200)


@never_cache
@require_safe
@tenant_page
def status(request: HttpRequest, upload_id: str) -> HttpResponse:
    """The progress, which the page asks for again and again; when there is news, the whole page is to be loaded."""
    found = _found(request, upload_id)
    if found.is_silent(timezone.now()):
        uploads.start(found, timezone.now())
    if not found.is_open:
        return HttpResponse(status=204, headers={"HX-Redirect": _next(found)})
    return render(request, "datasets/progress.html", {"upload": found})


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def discard(request: HttpRequest, upload_id: str) -> HttpResponse:
    uploads.discard(request.tenant, request.user, _found(request, upload_id))
    messages.success(request, "The upload is discarded; nothing of it was stored.")
    return redirect("datasets:list")


@require_safe
@tenant_page
def report(request: HttpRequest, upload_id: str, kind: str) -> HttpResponse:
    found = _found(request, upload_id)
    return {"json": reports.as_json, "csv": reports.as_csv}[kind](found.report, found.public_id)


def _found(request: HttpRequest, upload_id: str) -> Upload:
    return get_object_or_404(request.tenant.uploads.select_related("tenant", "created_by"), public_id=upload_id)


def _next(upload: Upload) -> str:
    if upload.stored_as:
        return reverse("datasets:detail", args=[upload.stored_as])
    return reverse("datasets:upload", args=[upload.public_id])


def _models() -> list[str]:
    return [info.name for info in catalog.known_models(timezone.now())]


def _renewed(request: HttpRequest) -> Any:
    series = request.POST.get("series") or request.GET.get("series")
    return request.tenant.datasets.filter(public_id=series).first() if series else None


def _initial(request: HttpRequest) -> dict[str, Any]:
    renewed = _renewed(request)
    return {"series": renewed.public_id, "name": renewed.name} if renewed else {}


def _upload(request: HttpRequest, form: forms.UploadForm) -> Upload | None:
    given = form.cleaned_data
    replaced = request.tenant.uploads.filter(public_id=given["replaces"]).first() if given["replaces"] else None
    options, name, more = form.options(), form.named(), {"file": given["file"], "eval_file": given["eval_file"]}
    if replaced is not None:
        options, name = {**replaced.options, "mapping": None, "encoding": ""}, given["name"] or _kept_name(replaced) or form.named()
        if replaced.eval_filename and not given["eval_file"]:
            more["eval_file"] = _Kept(replaced.eval_path.open("rb"), replaced.eval_filename)
    return _told(form, _begin, request, name=name, filename=given["file"].name, options=options, replaces=replaced, **more)


def _kept_name(replaced: Upload) -> str:
    """The name that somebody chose; one that came from the file goes with the file."""
    return "" if replaced.name == forms.stem(replaced.filename) else replaced.name


class _Kept:
    """The held-out file of the upload before, under its own name."""

    def __init__(self, file: Any, name: str):
        self._file, self.name = file, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _from_origin(request: HttpRequest, form: Any) -> Upload | None:
    origin, name = form.origin(), form.named()
    return _told(form, _begin, request, name=name, filename=name[:100], options=form.options(), origin=origin)


def _begin(request: HttpRequest, **order: Any) -> Upload:
    return uploads.begin(request.tenant, request.user, timezone.now(), **order)


def _change(request: HttpRequest, upload: Upload, form: forms.ReadingForm) -> bool:
    given = form.cleaned_data
    if given["drop_eval_file"]:
        uploads.drop_eval_file(request.tenant, request.user, upload)
    order = {"name": given["name"] or upload.name, "options": form.options(), "eval_file": given["eval_file"]}
    wish = Upload.Wish.STORE if request.POST.get("wish") == "store" else Upload.Wish.CHECK
    change = lambda: uploads.change(request.tenant, request.user, upload, timezone.now(), wish=wish, **order) or True  # noqa: E731
    return bool(_told(form, change))


def _told(form: Any, act: Callable[..., Any], *given: Any, **more: Any) -> Any:
    """What ``act`` gives; None when it refuses, the reasons beside their fields."""
    try:
        return act(*given, **more)
    except Invalid as refusal:
        for field, message in refusal.problems:
            form.add_error(field if field in form.fields else None, message)
    return None


def _samples(upload: Upload) -> tuple[list[dict[str, Any]], list[str]]:
    """(the first readable records, their columns); none while the file is not there or cannot be read."""
    if not upload.path.is_file():
        return [], []
    with upload.path.open("rb") as file:
        try:
            source = open_source(file, filename=upload.filename, encoding=upload.options.get("encoding", ""), warnings=Findings())
            records = [record for _, record in itertools.islice(source.records(), SAMPLED_ROWS) if isinstance(record, dict)]
        except (Unreadable, BadLine):
            return [], []
    columns = dict.fromkeys(name for record in records for name in record if len(name) <= 100)
    return records, list(columns)[:200]


def _mapping(upload: Upload) -> Mapping:
    """As chosen, else as the check proposed it."""
    try:
        return parse(upload.options.get("mapping") or upload.report.get("mapping") or {})
    except BadMapping:
        return Mapping()


def _reading(upload: Upload) -> dict[str, Any]:
    mapping = _mapping(upload)
    options = {name: upload.options.get(name) for name in ("eval_share", "seed", "model", "series", "encoding")}
    return {**options, **mapping.as_dict(), "shape": forms.shape_of(mapping), "name": upload.name}


def _again(upload: Upload) -> dict[str, Any]:
    return {"replaces": upload.public_id, "name": upload.name}


def _preview(samples: list[dict[str, Any]], mapping: Mapping) -> list[PreviewRow]:
    rows = []
    for number, sample in enumerate(samples[:SHOWN_ROWS]):
        try:
            row = apply(mapping, sample)
        except BadLine:
            continue
        rows.append(shown(number, row.messages, row.item))
    return rows
