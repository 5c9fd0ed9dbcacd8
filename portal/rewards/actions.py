"""Rewards' mutations."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from engine.spec import Grader
from portal.errors import Invalid
from portal.names import clean_name
from portal.rewards import templates
from portal.rewards.models import Reward
from tenants.access import require
from tenants.models import Role, Tenant, User

_GRADER = TypeAdapter(Grader)


def create_reward(tenant: Tenant, user: User, name: str, grader: Any) -> Reward:
    """Store ``grader`` in the engine's own schema. Raises ``Invalid`` naming each bad field, ``Forbidden`` for viewers."""
    require(tenant, user, Role.MEMBER)
    name, problems = clean_name(name)
    parsed = parse_grader(grader, problems)
    if problems:
        raise Invalid(problems)
    return Reward.objects.create(tenant=tenant, name=name, grader=parsed, created_by=user)


def parse_grader(raw: Any, problems: list[tuple[str, str]]) -> dict[str, Any]:
    """``raw`` with its defaults filled in; what is wrong with it is added to ``problems``."""
    try:
        grader = _GRADER.validate_python(raw).model_dump(mode="json")
    except ValidationError as error:
        problems += [(_path(e["loc"]), e["msg"].removeprefix("Value error, ")) for e in error.errors()]
        return {}
    problems += [(f"grader.{field}", "contains a NUL character; remove it") for field, value in grader.items() if "\x00" in str(value)]
    problems += templates.problems(grader, None)
    return grader


def _path(location: tuple[int | str, ...]) -> str:
    """The union's tag comes first in pydantic's path; nobody typed it into a field."""
    return ".".join(["grader", *(str(part) for part in location[1:])])
