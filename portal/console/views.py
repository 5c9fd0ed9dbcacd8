"""The operators' console: what goes on, why not more, and the few things that one may do about it."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from portal.console import acts, engines, overview, tenants, viewing, whatif
from portal.console.access import operator_page
from portal.console.deeds import DEEDS, ENGINE, Deed, DeedForm, barred
from portal.console.engines import Engine
from portal.query import paged, text
from tenants import audit as audit_log

TENANTS_PER_PAGE = 50
ACTS_PER_PAGE = 50
TILES = (
    ("rollout", "Rollout busy"),
    ("train", "Trainer busy"),
    ("idle", "Idle"),
    ("ttfs", "To the first step"),
    ("tpts", "Per step"),
    ("lag", "Events behind"),
    ("due", "To be sent"),
    ("slots", "Adapter slots"),
)


@require_safe
@operator_page
def index(request: HttpRequest) -> HttpResponse:
    """The frame; the script fills it from ``live`` and goes on asking."""
    engine = _engine(request)
    urls = {name: reverse(f"console:{name}") for name in ("live", "act", "index")}
    page = {**urls, "tenant": reverse("console:tenant", args=["ten_0"]), "engine": engine.public_id}
    others = {"engine": engine, "engines": engines.all_of_them()}
    return render(request, "console/overview.html", {"page": page, "zooms": overview.ZOOMS, "tiles": TILES, **others})


@require_safe
@operator_page
def live(request: HttpRequest) -> HttpResponse:
    asked = request.GET.get("zoom", "")
    zoom = int(asked) if asked in map(str, overview.ZOOMS) else overview.ZOOMS[-1]
    return JsonResponse(overview.live(timezone.now(), zoom, name=_engine(request).name))


@operator_page
def act(request: HttpRequest) -> HttpResponse:
    """One page for each deed: what it does, its fields, its reason. ``?deed=…&about=…``."""
    deed = DEEDS.get(request.GET.get("deed", ""))
    if deed is None:
        raise Http404
    target = _target(deed, request.GET.get("about", ""))
    form = deed.form(request.POST or None, initial=_initial(deed, target))
    if form.is_valid() and _done(request, deed, target, form):
        return redirect(_page_of(deed, target))
    context = {
        "deed": deed,
        "target": target,
        "form": form,
        "back": _page_of(deed, target),
        "policy": _policy(deed, target),
        "barred": barred(deed, target),
        "several": len(engines.all_of_them()) > 1,
    }
    return render(request, "console/act.html", context, status=422 if form.errors else 200)


@require_safe
@operator_page
def tenant_list(request: HttpRequest) -> HttpResponse:
    asked = text(request, "q", 254)
    page = paged(request, tenants.found(asked, timezone.now()), TENANTS_PER_PAGE)
    return render(request, "console/tenants.html", {"page": page, "q": asked, "extra": _asked(asked)})


@require_safe
@operator_page
def tenant(request: HttpRequest, public_id: str) -> HttpResponse:
    found = tenants.by_id(public_id)
    if found is None:
        raise Http404
    not_now = "tenant-suspend" if found.suspended_at else "tenant-restore"
    deeds = [deed for deed in DEEDS.values() if deed.on == "tenant" and deed.slug != not_now]
    return render(request, "console/tenant.html", {**tenants.portrait(found, timezone.now()), "deeds": deeds, "view_form": DeedForm()})


@require_POST
@operator_page
def view_as(request: HttpRequest, public_id: str) -> HttpResponse:
    """Look at the site as this organisation's viewers do."""
    found = tenants.by_id(public_id)
    if found is None:
        raise Http404
    form = DeedForm(request.POST)
    if not form.is_valid():
        messages.error(request, f"Say why: {' '.join(form.errors.get('reason', []))}")
        return redirect("console:tenant", public_id)
    now = timezone.now()
    acts.note("view-as", request.user, found.public_id, form.cleaned_data["reason"], now)
    audit_log.record(found, request.user, "operator.viewed", found, reason=form.cleaned_data["reason"])
    viewing.begin(request, found, form.cleaned_data["reason"], now)
    return redirect("home")


@require_POST
@operator_page
def view_end(request: HttpRequest) -> HttpResponse:
    if (public_id := viewing.end(request)) is None:
        return redirect("console:index")
    acts.note("view-end", request.user, public_id, "ended by hand", timezone.now())
    return redirect("console:tenant", public_id)


@operator_page
def what_if(request: HttpRequest) -> HttpResponse:
    form = whatif.QuestionForm(request.POST or None)
    told = whatif.ask(form) if form.is_valid() else None
    return render(request, "console/whatif.html", {"form": form, "told": told}, status=422 if form.errors else 200)


@require_safe
@operator_page
def engine_list(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    return render(request, "console/engines.html", {"engines": engines.registry(now), "models": engines.models(now)})


@require_safe
@operator_page
def audit(request: HttpRequest) -> HttpResponse:
    asked = text(request, "q", 254)
    page = paged(request, tenants.all_acts(asked), ACTS_PER_PAGE)
    return render(request, "console/audit.html", {"page": page, "q": asked, "extra": _asked(asked)})


def _target(deed: Deed, about: str) -> Any:
    look = {"job": tenants.job_by_id, "tenant": tenants.by_id, ENGINE: engines.by_id}[deed.on]
    target = look(about)
    if target is None:
        raise Http404
    return target


def _initial(deed: Deed, target: Any) -> dict[str, Any]:
    """A gift's key is fresh with each look at the form, and stays the same when the form is sent twice."""
    known = {"tenant-credit": lambda: {"key": uuid.uuid4().hex[:12]}, "tenant-weight": lambda: {"weight": target.weight}}
    return known.get(deed.slug, dict)()


def _done(request: HttpRequest, deed: Deed, target: Any, form: DeedForm) -> bool:
    try:
        acts.perform(deed, request.user, target, form.cleaned_data, timezone.now())
    except acts.Failed as failed:
        for field, message in failed.problems or [("", str(failed))]:
            form.add_error(
                field if field in form.fields else None, f"{field}: {message}" if field and field not in form.fields else message
            )
        return False
    messages.success(request, f"{deed.title}: done.")
    return True


def _page_of(deed: Deed, target: Any) -> str:
    if deed.on == "tenant":
        return reverse("console:tenant", args=[target.public_id])
    if deed.on == ENGINE and target.name:
        return f"{reverse('console:index')}?{urlencode({'engine': target.public_id})}"
    return reverse("console:index")


def _engine(request: HttpRequest) -> Engine:
    if (found := engines.by_id(request.GET.get("engine", ""))) is None:
        raise Http404
    return found


def _asked(text: str) -> str:
    """What the pager's links carry on."""
    return f"&{urlencode({'q': text})}" if text else ""


def _policy(deed: Deed, target: Any) -> dict[str, str]:
    """Each field's value as one would type it."""
    known = overview.ask_engine(target.name).get("policy", {}) if deed.slug == "policy" else {}
    return {name: json.dumps(value) for name, value in known.items()}
