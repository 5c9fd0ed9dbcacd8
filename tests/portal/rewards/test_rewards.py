from __future__ import annotations

from typing import Any

import pytest

from portal.errors import Invalid
from portal.rewards import templates
from portal.rewards.actions import create_reward
from portal.rewards.models import Reward
from tests.portal.world import World

BAD = [
    ({}, "grader.type"),
    ("numeric", "grader"),
    ({"type": "guess"}, "grader.type"),
    ({"type": "numeric", "absolute_tolerance": -1}, "grader.absolute_tolerance"),
    ({"type": "numeric", "absolute_tolerance": float("inf")}, "grader.absolute_tolerance"),
    ({"type": "math", "speed": 3}, "grader.speed"),
    ({"type": "string_check", "operation": "almost"}, "grader.operation"),
    ({"type": "string_check", "reference": ""}, "grader.reference"),
    ({"type": "string_check", "reference": "{{answer}}"}, "grader.reference"),
    ({"type": "string_check", "reference": "{{item.answer"}, "grader.reference"),
    ({"type": "string_check", "input": "{{sample.text}}"}, "grader.input"),
    ({"type": "string_check", "reference": "a\x00b"}, "grader.reference"),
    ({"type": "string_check", "name": "a\x00b"}, "grader.name"),
    ({"type": "json_schema", "json_schema": {"const": "a\x00b"}}, "grader.json_schema.const"),
    ({"type": "python", "source": "def grade(sample):\n    return 1"}, "grader.source"),
    ({"type": "http", "url": "https://127.1/", "signing_secret": "x" * 32}, "grader.url"),
    ({"type": "multi", "graders": {"a": {"type": "numeric"}}, "calculate_output": "a + b"}, "grader.calculate_output"),
    ({"type": "multi", "graders": {"a": {"type": "math", "x": 1}}, "calculate_output": "a"}, "grader.graders.a.x"),
]


@pytest.mark.parametrize(("grader", "field"), BAD)
def test_a_bad_grader_is_refused_with_its_field(world: World, grader: Any, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        create_reward(world.sums, world.alice, "x", grader)
    assert field in dict(refused.value.problems)
    assert not Reward.objects.exists()


def test_a_reward_is_stored_with_its_defaults(world: World) -> None:
    reward = create_reward(world.sums, world.alice, " exact \n match ", {"type": "string_check"})
    assert (reward.name, reward.kind, reward.grader["operation"]) == ("exact match", "string_check", "eq")


@pytest.mark.parametrize("name", ["", "   ", None, "x" * 101, "a\x00b", 7])
def test_a_reward_needs_a_proper_name(world: World, name: Any) -> None:
    with pytest.raises(Invalid) as refused:
        create_reward(world.sums, world.alice, name, {"type": "numeric"})
    assert "name" in dict(refused.value.problems)


def test_a_column_with_a_dot_is_one_column() -> None:
    grader = {"type": "numeric", "reference": "{{ item.final.answer }}"}
    assert templates.problems(grader, ["final.answer"]) == []
    assert templates.problems(grader, ["final"]) != []


def test_without_a_dataset_columns_are_not_checked() -> None:
    assert templates.problems({"type": "math", "reference": "{{item.anything}}"}, None) == []
