"""The probe in the browser: a part of the Reward Lab's page, and a page of its own without scripts."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal import gateway
from portal.billing import costs
from portal.errors import Invalid
from portal.jobs import catalog, reach
from portal.pages.access import changed_by, tenant_page
from portal.rewards import probes
from portal.rewards.models import Reward
from portal.rewards.probe_form import ProbeForm, starting_values, values_of
from portal.rewards.probe_models import Probe
from tenants.models import Role

AWAY = "engine-away"  # the notice that looks by itself whether it may go, and reads it off the whole page
NO_ENGINE = "The engine does not answer just now, so nothing can be tried. Try again in a minute."


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
@changed_by(Role.MEMBER)
def probe(request: HttpRequest, public_id: str) -> HttpResponse:
    """The form, and the newest probe of this reward. With ``HX-Request`` only that part of the page."""
    reward = get_object_or_404(request.tenant.rewards, public_id=public_id)
    models = catalog.known_models(timezone.now())
    newest = reward.probes.select_related("dataset").first()
    initial = {**starting_values(request.tenant, models), **(values_of(newest) if newest else {}), **request.GET.dict()}
    form = ProbeForm(request.tenant, models, request.POST or None, initial=initial)
    if form.is_valid() and _start(request, reward, form):
        if not request.headers.get("HX-Request"):
            return redirect("rewards:probe", reward.public_id)
        form = ProbeForm(request.tenant, models, initial=form.cleaned_data)
        newest = reward.probes.select_related("dataset").first()
    away = reach.of_models(model.name for model in models)
    context = {"reward": reward, "form": form, "away": away, **(_shown(newest) if newest else {})}
    if request.headers.get("HX-Request") and request.headers.get("HX-Target") != AWAY:  # htmx puts nothing but a success into the page
        return render(request, "rewards/probe_body.html", context)
    return render(request, "rewards/probe.html", context, status=422 if form.errors else 200)


@never_cache
@require_safe
@tenant_page
def state(request: HttpRequest, probe_id: str) -> HttpResponse:
    """What is shown of one probe; it asks again by itself while the probe runs."""
    return _answer(request, _found(request, probe_id))


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def cancel(request: HttpRequest, probe_id: str) -> HttpResponse:
    found = probes.cancel_probe(request.tenant, request.user, _found(request, probe_id), timezone.now())
    return _answer(request, found) if request.headers.get("HX-Request") else redirect("rewards:probe", found.reward.public_id)


def _answer(request: HttpRequest, found: Probe) -> HttpResponse:
    if not request.headers.get("HX-Request"):
        return redirect(reverse("rewards:probe", args=[found.reward.public_id]))
    return render(request, "rewards/probe_state.html", {"reward": found.reward, **_shown(found)})


def _found(request: HttpRequest, probe_id: str) -> Probe:
    return get_object_or_404(request.tenant.probes.select_related("reward", "dataset"), public_id=probe_id)


def _shown(found: Probe) -> dict[str, Any]:
    found = probes.refresh(found, timezone.now())
    cost = None if found.is_open else costs.of_source(found.tenant, found.public_id)
    return {"probe": found, "result": found.result, "cost": cost}


def _start(request: HttpRequest, reward: Reward, form: ProbeForm) -> bool:
    try:
        probes.start_probe(request.tenant, request.user, reward, form.raw(), timezone.now())
    except Invalid as refusal:
        form.refuse(refusal)
    except gateway.EngineDown:
        form.add_error(None, NO_ENGINE)
    return not form.errors
