"""A stored grader as the form's fields hold it: what a draft that copies it begins with."""

from __future__ import annotations

import json
import secrets
from typing import Any

from portal.rewards.kinds import BY_TYPE
from portal.rewards.models import Reward
from tenants.models import Tenant

MAX_PARTS = 4


class NotInForm(Exception):
    """A grader that was made by a program and has more than the form can show."""


def fields_of(tenant: Tenant, reward: Reward) -> dict[str, list[str]]:
    """Raises ``NotInForm``. The secret that signs requests is not copied: the draft gets one of its own."""
    grader = reward.grader
    values = {"name": f"{reward.name[:90]} (copy)", "type": grader["type"]}
    for field in BY_TYPE[grader["type"]].fields:
        values |= _field(field, grader)
    if "graders" in grader:
        values |= _parts(tenant, grader["graders"])
    return {name: [text] for name, value in values.items() if (text := _text(value)) is not None}


def _field(field: str, grader: dict[str, Any]) -> dict[str, Any]:
    match field:
        case "range_low" | "range_high":
            return {field: grader["range"][field == "range_high"]}
        case "code_input":
            return {field: grader["input"]}
        case "prompt":
            return {field: _prompt(grader["input"])}
        case "labels" | "passing_labels":
            return {field: "\n".join(grader[field])}
        case "json_schema":
            return {field: json.dumps(grader[field], indent=2, ensure_ascii=False)}
        case "signing_secret":
            return {field: secrets.token_urlsafe(32)}
        case "parts":
            return {}
    return {field: grader[field]}


def _prompt(messages: list[dict[str, str]]) -> str:
    if len(messages) != 1 or messages[0]["role"] != "user":
        raise NotInForm("its judge reads several messages")
    return messages[0]["content"]


def _parts(tenant: Tenant, graders: dict[str, Any]) -> dict[str, str]:
    if len(graders) > MAX_PARTS:
        raise NotInForm(f"it combines more than {MAX_PARTS} rewards")
    own = list(tenant.rewards.all())
    values: dict[str, str] = {}
    for number, (name, grader) in enumerate(graders.items(), start=1):
        part = next((reward for reward in own if reward.grader == grader), None)
        if part is None:
            raise NotInForm(f"its part {name} is no reward of its own")
        values |= {f"part_{number}": part.public_id, f"part_name_{number}": name}
    return values


def _text(value: Any) -> str | None:
    """As a browser sends it; None for an unchecked box, which it does not send."""
    if isinstance(value, bool):
        return "on" if value else None
    return f"{value:.12g}" if isinstance(value, float) else str(value)
