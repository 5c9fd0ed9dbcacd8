"""Rewards' mutations."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from engine.grader_spec import parse_grader
from engine.spec import SpecError
from portal.errors import Invalid
from portal.names import clean_name
from portal.rewards.models import Reward
from portal.rewards.secrets import sealed
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User


def create_reward(tenant: Tenant, user: User, name: str, grader: Any) -> Reward:
    """Store ``grader`` in the engine's own schema. Raises ``Invalid`` naming each bad field, ``Forbidden`` for viewers."""
    require(tenant, user, Role.MEMBER)
    name, problems = clean_name(name)
    parsed = sealed(tenant.public_id, checked_grader(grader, problems), problems)
    if problems:
        raise Invalid(problems)
    with transaction.atomic():
        reward = Reward.objects.create(tenant=tenant, name=name, grader=parsed, created_by=user)
        audit.record(tenant, user, "reward.created", reward)
    return reward


def checked_grader(raw: Any, problems: list[tuple[str, str]]) -> dict[str, Any]:
    """``raw`` with its defaults filled in; what is wrong with it is added to ``problems``."""
    if not isinstance(raw, dict):
        problems.append(("grader", "must be an object with a type"))
        return {}
    try:
        return parse_grader(raw).model_dump(mode="json")
    except SpecError as error:
        problems += [(f"grader.{field}", message) for field, message in error.problems]
        return {}
