"""Rewards in the browser."""

from __future__ import annotations

import secrets

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from portal.errors import Invalid
from portal.pages.access import changed_by, maker_page, tenant_page
from portal.pages.deletion import delete_typed, refused
from portal.query import paged
from portal.rewards import lab_views, removal, sheets
from portal.rewards.actions import create_reward
from portal.rewards.examples import items_of, rules
from portal.rewards.forms import RewardForm
from portal.rewards.kinds import BY_TYPE, KINDS, facts
from portal.rewards.models import Reward
from tenants.models import Role

REWARDS_PER_PAGE = 50


@require_safe
@tenant_page
def index(request: HttpRequest) -> HttpResponse:
    page = paged(request, request.tenant.rewards.select_related("created_by"), REWARDS_PER_PAGE)
    return render(request, "rewards/list.html", {"page": page, "drafts": sheets.drafts_of(request.tenant, request.user)})


@maker_page
def new(request: HttpRequest) -> HttpResponse:
    """``do`` save, which the page does by itself, and lab keep a draft; else the reward is made."""
    if request.method == "POST" and request.POST.get("do") in ("save", "lab"):
        return lab_views.begin_draft(request)
    form = RewardForm(request.tenant, request.POST or None, initial={"signing_secret": secrets.token_urlsafe(32)})
    if form.is_valid() and (reward := _create(request, form)):
        return redirect("rewards:detail", reward.public_id)
    context = {"form": form, "kinds": KINDS, "rules": rules(), "items": items_of(request.tenant)}
    return render(request, "rewards/new.html", context, status=422 if form.errors else 200)


@require_safe
@tenant_page
def detail(request: HttpRequest, public_id: str) -> HttpResponse:
    reward = get_object_or_404(request.tenant.rewards.select_related("created_by"), public_id=public_id)
    kind = BY_TYPE[reward.kind]
    context = {
        "reward": reward,
        "kind": kind,
        "facts": facts(reward.grader),
        "jobs": reward.jobs.all()[:10],
        "stays": removal.in_use(reward),
        "refused": refused(request, reward.public_id),
    }
    return render(request, "rewards/detail.html", context)


@require_POST
@tenant_page
@changed_by(Role.MEMBER)
def delete(request: HttpRequest, public_id: str) -> HttpResponse:
    reward = get_object_or_404(request.tenant.rewards, public_id=public_id)
    return delete_typed(request, reward, removal.delete_reward, pages="rewards")


def _create(request: HttpRequest, form: RewardForm) -> Reward | None:
    try:
        return create_reward(request.tenant, request.user, form.cleaned_data["name"], form.grader())
    except Invalid as refusal:
        form.refuse(refusal.problems)
        return None
