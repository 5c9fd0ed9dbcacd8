"""Sheets' mutations: what somebody types in the Lab is kept field by field, and a draft becomes a reward."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from engine.grader_spec import shown
from portal.errors import Conflict, Invalid
from portal.rewards.actions import create_reward
from portal.rewards.models import Reward, Sheet
from tenants.access import require
from tenants.models import Role, Tenant, User

MAX_DRAFTS = 50
MAX_BYTES = 1 << 20
_NOT_KEPT = ("csrfmiddlewaretoken", "do")

Fields = Mapping[str, list[str]]


def new_draft(tenant: Tenant, user: User, fields: Fields, now: datetime) -> Sheet:
    """Raises ``Invalid`` for more than a sheet holds, ``Conflict`` for too many drafts, ``Forbidden`` for viewers."""
    require(tenant, user, Role.MEMBER)
    kept = _kept(fields)
    if drafts_of(tenant, user).count() >= MAX_DRAFTS:
        raise Conflict([("draft", f"you have {MAX_DRAFTS} drafts already; discard one that you do not need")])
    return tenant.sheets.create(fields=kept, created_by=user, created_at=now, changed_at=now)


def keep(tenant: Tenant, user: User, sheet: Sheet, fields: Fields, now: datetime) -> None:
    """Raises ``Invalid`` or ``Forbidden``."""
    require(tenant, user, Role.MEMBER)
    sheet.fields, sheet.changed_at = _kept(fields), now
    tenant.sheets.filter(pk=sheet.pk).update(fields=sheet.fields, changed_at=now)


def drafts_of(tenant: Tenant, user: User) -> QuerySet[Sheet]:
    """A person's own: a draft may hold a secret that was typed and is not sealed yet."""
    return tenant.sheets.filter(reward=None, created_by=user)


def sheet_of(tenant: Tenant, user: User, reward: Reward) -> Sheet | None:
    """What this person has typed to try ``reward`` on."""
    return tenant.sheets.filter(reward=reward, created_by=user).first()


def keep_for(tenant: Tenant, user: User, reward: Reward, fields: Fields, now: datetime) -> Sheet:
    require(tenant, user, Role.MEMBER)
    if sheet_of(tenant, user, reward) is None:
        try:
            with transaction.atomic():
                return tenant.sheets.create(reward=reward, fields=_kept(fields), created_by=user, created_at=now, changed_at=now)
        except IntegrityError:
            pass  # made at the same moment by another window
    sheet = sheet_of(tenant, user, reward)
    keep(tenant, user, sheet, fields, now)
    return sheet


def discard(tenant: Tenant, user: User, sheet: Sheet) -> None:
    require(tenant, user, Role.MEMBER)
    tenant.sheets.filter(pk=sheet.pk).delete()


def become_reward(tenant: Tenant, user: User, sheet: Sheet, name: str, grader: Any) -> Reward:
    """Store the draft as a reward; its trials of exactly this grader go with it. Raises ``Invalid`` naming fields, ``Forbidden``."""
    with transaction.atomic():
        reward = create_reward(tenant, user, name, grader)
        mine = [run.pk for run in sheet.lab_runs.all() if shown(run.grader) == reward.shown_grader]
        tenant.lab_runs.filter(pk__in=mine).update(reward=reward, sheet=None)
        tried = {field: values for field, values in sheet.fields.items() if field.startswith("try-")}
        tenant.sheets.filter(pk=sheet.pk).delete()
        tenant.sheets.create(reward=reward, fields=tried, created_by=user)
    return reward


def initial(form: type[forms.Form] | forms.Form, fields: Fields, prefix: str = "") -> dict[str, Any]:
    """The initial values of a form that is to show what was kept; nothing where nothing was."""
    if not fields:
        return {}
    known = form.base_fields if isinstance(form, type) else form.fields
    found: dict[str, Any] = {}
    for name, field in known.items():
        values = fields.get(f"{prefix}-{name}" if prefix else name)
        if isinstance(field, forms.BooleanField):
            found[name] = bool(values)
        elif isinstance(field, forms.MultipleChoiceField):
            found[name] = values or []
        elif values:
            found[name] = values[-1]
    return found


def _kept(fields: Fields) -> dict[str, list[str]]:
    kept = {name: [value.replace("\r\n", "\n") for value in values] for name, values in fields.items() if name not in _NOT_KEPT}
    text = json.dumps(kept, ensure_ascii=False)
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise Invalid([("draft", f"a draft holds at most {MAX_BYTES:,} bytes; shorten it")])
    if "\\u0000" in text:
        raise Invalid([("draft", "contains a NUL character; remove it")])
    return kept
