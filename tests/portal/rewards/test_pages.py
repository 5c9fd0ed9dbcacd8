"""Every kind of reward, made in the page and shown; errors stand beside their fields."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from engine.grader_spec import TYPES
from portal.rewards.actions import create_reward
from portal.rewards.kinds import KINDS
from portal.rewards.models import Reward
from tests.portal.rewards.examples import FIELDS, GRADERS, SECRET, grader
from tests.portal.world import World

USUAL = {
    **{"input": "{{sample.output_text}}", "code_input": "{{sample.output_text}}", "reference": "{{item.answer}}", "operation": "eq"},
    **{
        "absolute_tolerance": "0",
        "relative_tolerance": "0",
        "evaluation_metric": "bleu",
        "seconds": "10",
        "range_low": "0",
        "range_high": "1",
    },
}


@pytest.fixture
def alice(world: World) -> Client:
    return world.client(world.alice)


def send(alice: Client, world: World, type: str, **changes: Any) -> Any:
    part = create_reward(world.sums, world.alice, "exact", grader("string_check"))
    parts = {"part_1": part.public_id} if type == "multi" else {}
    return alice.post("/rewards/new/", {**USUAL, "name": "mine", "type": type, **FIELDS[type], **parts, **changes})


def errors(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 422
    return response.context["form"].errors


def test_the_page_offers_every_kind_of_the_engines_schema():
    assert {kind.type for kind in KINDS} == set(TYPES) == set(FIELDS)


@pytest.mark.parametrize("type", TYPES)
def test_a_reward_of_each_kind_is_made_and_shown(alice: Client, world: World, type: str) -> None:
    response = send(alice, world, type)
    assert response.status_code == 302, response.context and response.context["form"].errors
    reward = Reward.objects.get(name="mine")
    wanted = {key: value for key, value in GRADERS[type].items() if key not in ("graders", "signing_secret")}
    assert {key: reward.grader[key] for key in wanted} == wanted
    assert SECRET not in str(reward.grader)
    shown = alice.get(response["Location"])
    assert shown.status_code == 200
    assert SECRET not in shown.content.decode()
    assert reward.summary in alice.get("/rewards/").context["page"].object_list[0].summary


@pytest.mark.parametrize(
    ("type", "field", "value"),
    [
        ("string_check", "reference", "{{answer}}"),
        ("numeric", "absolute_tolerance", "-1"),
        ("numeric", "absolute_tolerance", "a lot"),
        ("numeric", "reference", ""),
        ("text_similarity", "evaluation_metric", "cosine"),
        ("json_schema", "json_schema", "{"),
        ("json_schema", "json_schema", '{"type": "objekt"}'),
        ("json_schema", "json_schema", "[" * 5000),
        ("json_schema", "json_schema", ""),
        ("python", "source", "def grade(sample):\n    return 1"),
        ("python", "source", ""),
        ("python", "range_low", "3"),
        ("code_exec", "tests", "{{tests}}"),
        ("code_exec", "code_input", "{{tests}}"),
        ("code_exec", "seconds", "0"),
        ("score_model", "prompt", "How good is it?"),
        ("score_model", "model", ""),
        ("label_model", "passing_labels", "fine"),
        ("label_model", "labels", "one"),
        ("http", "url", "https://127.1/"),
        ("http", "url", "http://grader.example.com/"),
        ("http", "signing_secret", "short"),
        ("multi", "calculate_output", "0.5 * right"),
        ("multi", "calculate_output", ""),
        ("multi", "part_1", ""),
        ("multi", "part_1", "rw_aaaaaaaaaaaaaaaaaaaa"),
    ],
)
def test_a_bad_field_is_marked_and_nothing_is_stored(alice: Client, world: World, type: str, field: str, value: str) -> None:
    assert field in errors(send(alice, world, type, **{field: value})) or (type, field) == ("label_model", "labels")
    assert not Reward.objects.filter(name="mine").exists()


def test_what_was_typed_stays_in_the_form(alice: Client, world: World) -> None:
    response = send(alice, world, "python", source="def grade(sample):\n    return 77")
    assert "return 77" in response.content.decode()


def test_faults_in_fields_of_other_kinds_do_not_matter(alice: Client, world: World) -> None:
    assert send(alice, world, "math", absolute_tolerance="x", json_schema="{", seconds="", part_1="rw_gone").status_code == 302


def test_parts_are_named_after_their_rewards_or_as_typed(alice: Client, world: World) -> None:
    other = create_reward(world.sums, world.alice, "Right answer!", grader("numeric"))
    send(alice, world, "multi", part_2=other.public_id, calculate_output="exact + right_answer")
    send(alice, world, "multi", part_2=other.public_id, part_name_2="r", calculate_output="exact + r", name="second")
    names = [sorted(reward.grader["graders"]) for reward in Reward.objects.filter(name__in=("mine", "second")).order_by("name")]
    assert names == [["exact", "right_answer"], ["exact", "r"]]


def test_two_parts_of_one_name_are_refused(alice: Client, world: World) -> None:
    other = create_reward(world.sums, world.alice, "exact", grader("numeric"))
    assert "part_name_2" in errors(send(alice, world, "multi", part_2=other.public_id))


def test_a_strangers_reward_cannot_be_a_part(alice: Client, world: World) -> None:
    foreign = world.reward(world.charlie)
    assert "part_1" in errors(send(alice, world, "multi", part_1=foreign.public_id))
    assert foreign.public_id not in alice.get("/rewards/new/").content.decode()


def test_combinations_are_not_offered_as_parts(alice: Client, world: World) -> None:
    both = create_reward(world.sums, world.alice, "both of them", grader("multi"))
    assert both.public_id not in alice.get("/rewards/new/").content.decode()


def test_each_new_form_brings_a_secret_of_its_own(alice: Client) -> None:
    secrets = {alice.get("/rewards/new/").context["form"]["signing_secret"].value() for _ in range(2)}
    assert len(secrets) == 2
    assert min(map(len, secrets)) >= 32
