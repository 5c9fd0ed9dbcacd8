"""``/v1/fine_tuning/alpha/graders``: is this a grader, and what does it give for one answer."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from engine.grader_spec import parse_grader, shown
from portal import gateway
from portal.errors import Conflict, Invalid
from portal.openai import fields
from portal.openai.base import View
from portal.rewards import trial_costs
from portal.rewards.actions import checked_grader
from tenants.access import require
from tenants.ids import new_id
from tenants.models import Role, Tenant, User

CASE_SECONDS = 25.0
# What goes wrong with a grading, and the flag that OpenAI's answer has for it.
_FLAGS = {
    "timeout": "python_grader_runtime_error",
    "hard_timeout": "python_grader_runtime_error",
    "memory": "python_grader_runtime_error",
    "crash": "python_grader_runtime_error",
    "protocol": "python_grader_server_error",
    "exception": "python_grader_runtime_error",
    "import_error": "python_grader_runtime_error",
    "judge": "model_grader_server_error",
    "bad_value": "invalid_variable_error",
}


class Validate(View):
    noun = "rewards"

    def post(self, request: Request) -> Response:
        given = fields.checked(request.data, {"grader": fields.GRADER_RUN["grader"]})
        return Response({"grader": shown(_grader(given.get("grader")))})


class Run(View):
    noun = "rewards"

    def post(self, request: Request) -> Response:
        given = fields.checked(request.data, fields.GRADER_RUN)
        grader = _grader(given.get("grader"))
        sample, item = given.get("model_sample"), given.get("item", {})
        if not isinstance(sample, str):
            raise Invalid([("model_sample", "must be the text of the answer")])
        if not isinstance(item, dict):
            raise Invalid([("item", "must be an object")])
        # OpenAI's request names no base model: the first engine answers, and a judge called base is its model.
        return Response(answer(grader, grade(gateway.engine(), self.tenant, request.user, grader, sample, item)))


def grade(engine: gateway.Gateway, tenant: Tenant, user: User, grader: dict[str, Any], text: str, item: dict[str, Any]) -> dict[str, Any]:
    """One outcome of the Lab: reward, components, error, judge_tokens, seconds. Judges' tokens are held before and billed after.

    Raises ``gateway.EngineDown``, ``Conflict`` when busy, and the refusals of ``spending.hold``.
    """
    require(tenant, user, Role.MEMBER)
    case = {"sample": {"output_text": text}, "item": item}
    held = trial_costs.hold(tenant, new_id("grd"), grader, [case], 1, timezone.now())
    outcome: dict[str, Any] | None = None
    try:
        outcome = _graded(engine, tenant, grader, case)
    finally:
        if held is not None:
            trial_costs.bill_one(held, outcome, timezone.now())
    return outcome


def _graded(engine: gateway.Gateway, tenant: Tenant, grader: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    order = {"tenant": tenant.public_id, "grader": grader, "cases": [case], "begin_seconds": 1.0, "case_seconds": CASE_SECONDS}
    answered = engine.grade(order, seconds=1.0 + CASE_SECONDS)
    if answered["busy"]:
        raise Conflict([("grader", "other gradings of yours are under way; try again when they have ended")])
    (result,) = answered["results"]
    if result["cut_off"]:
        error = {"kind": "timeout", "message": f"not graded within {CASE_SECONDS:g} s", "line": None}
        return {"reward": None, "components": {}, "error": error, "judge_tokens": 0, "seconds": CASE_SECONDS}
    return result["outcomes"][0]


def answer(grader: dict[str, Any], outcome: dict[str, Any]) -> dict[str, Any]:
    error = outcome["error"]
    flags = {name: False for name in _ALL_FLAGS}
    if error:
        flags[_FLAGS.get(error["kind"], "other_error")] = True
    parts = {name: value for name, value in outcome["components"].items() if name != grader["name"]}
    return {
        "reward": outcome["reward"],
        "sub_rewards": parts,
        "model_grader_token_usage_per_model": {},
        "metadata": {
            "name": grader["name"],
            "type": grader["type"],
            "execution_time": outcome["seconds"],
            "scores": outcome["components"],
            "token_usage": outcome["judge_tokens"] or None,
            "sampled_model_name": None,
            "errors": {
                **flags,
                "python_grader_runtime_error_details": error and error["message"],
                "python_grader_server_error_type": None,
                "model_grader_server_error_details": None,
            },
        },
    }


def _grader(raw: Any) -> dict[str, Any]:
    problems: list[tuple[str, str]] = []
    parsed = checked_grader(raw, problems)
    if problems:
        raise Invalid(problems)
    return parse_grader(parsed).model_dump(mode="json")


_ALL_FLAGS = (
    *("formula_parse_error", "invalid_variable_error", "model_grader_parse_error", "model_grader_refusal_error"),
    *("model_grader_server_error", "other_error", "python_grader_runtime_error", "python_grader_server_error"),
    *("sample_parse_error", "truncated_observation_error", "unresponsive_reward_error"),
)
