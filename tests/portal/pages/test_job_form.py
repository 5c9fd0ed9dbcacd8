"""The form of a job: generated from the spec, refused by the door."""

from __future__ import annotations

from typing import Any

import pytest

from engine.spec import JobSpec
from portal.jobs import knobs, presets
from tests.portal.fake_engine import TINY
from tests.portal.world import World


def leaves(schema: dict[str, Any]) -> set[str]:
    """Every field of the spec that holds one changeable value."""
    found = {"seed"}
    for section in knobs.SECTIONS:
        name = schema["properties"][section]["$ref"].rpartition("/")[2]
        fields = schema["$defs"][name]["properties"].items()
        found |= {f"{section}.{field}" for field, facts in fields if "const" not in facts and "type" in facts}
    return found


def order(world: World, **changes: str) -> dict[str, str]:
    base = {"dataset": world.dataset().public_id, "reward": world.reward().public_id, "base_model": "tiny-math"}
    return {**base, **changes}


def test_every_field_of_the_spec_is_on_the_form() -> None:
    assert {knob.path for knob in knobs.knobs()} >= leaves(JobSpec.model_json_schema())


@pytest.mark.parametrize("knob", knobs.knobs(), ids=lambda knob: knob.path)
def test_each_knob_has_a_name_and_a_sentence(knob: knobs.Knob) -> None:
    assert knob.label
    assert knob.help.endswith(".")


def test_what_the_form_left_empty_is_the_specs_default(world: World) -> None:
    answer = world.client(world.alice).post("/jobs/new/", order(world))
    assert answer.status_code == 302
    job = world.sums.jobs.get()
    expected = JobSpec.model_validate({**job.spec, "rollout": {}, "train": {}, "lora": {}, "eval": {}, "seed": 0})
    assert {**job.spec, "rollout": {**job.spec["rollout"], "ignore_eos": False}} == expected.model_dump(mode="json")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rollout.group_size", "0", "greater than or equal to 2"),
        ("rollout.group_size", "many", "Enter a whole number"),
        ("rollout.max_new_tokens", "4000", "128 tokens"),
        ("lora.rank", "64", "at most 16"),
        ("rollout.prompts_per_step", "4000", "training rows"),
        ("train.learning_rate", "-1", "greater than or equal to 0"),
    ],
)
def test_a_refused_value_is_told_at_its_field_and_nothing_is_stored(world: World, field: str, value: str, message: str) -> None:
    answer = world.client(world.alice).post("/jobs/new/", order(world, **{field: value}))
    assert answer.status_code == 422
    assert message in " ".join(answer.context["form"].errors[field])
    assert not world.sums.jobs.exists()


def test_all_faults_are_told_at_once_those_of_reading_and_those_of_the_door(world: World) -> None:
    typed = {"train.steps": "-3", "train.learning_rate": "1e9", "rollout.group_size": "0", "seed": "1" + "0" * 23, "lora.rank": "0"}
    answer = world.client(world.alice).post("/jobs/new/", order(world, **typed, **{"budget.micros": "abc"}))
    assert answer.status_code == 422
    errors = answer.context["form"].errors
    assert set(errors) == {*typed, "budget.micros"}
    assert not world.sums.jobs.exists()


def test_a_number_that_was_rubbed_out_is_a_fault_beside_the_others_and_never_the_default(world: World) -> None:
    typed = {"train.learning_rate": "", "train.steps": "-3", "lora.rank": "0", "train.dual_clip": ""}
    errors = world.client(world.alice).post("/jobs/new/", order(world, **typed)).context["form"].errors
    assert set(errors) == {"train.learning_rate", "train.steps", "lora.rank"}
    assert errors["train.learning_rate"] == ["Fill this in; 0.001 is usual."]


def test_the_summary_leads_to_each_faulty_field(world: World) -> None:
    page = world.client(world.alice).post("/jobs/new/", order(world, **{"train.steps": "-3", "lora.rank": "0"})).content.decode()
    summary = page.partition("data-faults")[2].partition("</ul>")[0]
    assert '<a href="#id_train.steps">Training steps</a>: Must be greater' in summary
    assert '<a href="#id_lora.rank">Adapter rank</a>: Must be greater' in summary
    assert page.count("data-faults") == 1 and 'id="id_lora.rank"' in page


def test_what_could_not_be_read_is_told_once(world: World) -> None:
    answer = world.client(world.alice).post("/jobs/new/", {"budget.micros": "abc", "reward": "rw_none", "train.steps": "few"})
    assert {field: len(told) for field, told in answer.context["form"].errors.items()} == dict.fromkeys(
        ("dataset", "reward", "base_model", "budget.micros", "train.steps"), 1
    )


def test_a_template_that_the_dataset_cannot_fill_is_told_at_the_reward(world: World) -> None:
    from portal.rewards.actions import create_reward

    reward = create_reward(world.sums, world.alice, "odd", {"type": "string_check", "reference": "{{item.solution}}"})
    answer = world.client(world.alice).post("/jobs/new/", order(world, reward=reward.public_id))
    assert "no column solution" in " ".join(answer.context["form"].errors["reward"])


def test_a_copy_begins_with_the_settings_of_its_original(world: World) -> None:
    job = world.job(train={"steps": 7})
    form = world.client(world.alice).get(f"/jobs/new/?from={job.public_id}").context["form"]
    assert form["train.steps"].value() == 7
    assert form["dataset"].value() == job.dataset.public_id


def test_a_strangers_job_cannot_be_copied(world: World) -> None:
    job = world.job()
    assert world.client(world.charlie).get(f"/jobs/new/?from={job.public_id}").status_code == 404


def test_a_preset_that_no_model_can_run_says_why() -> None:
    assert presets.find("quick").obstacle([TINY]) is None
    assert "2,304 tokens" in presets.find("gsm8k").obstacle([TINY])


def test_a_viewer_may_not_start_a_job(world: World) -> None:
    answer = world.client(world.vera).post("/jobs/new/", order(world))
    assert answer.status_code == 403
    assert "needs the role member" in answer.content.decode()


def test_a_version_without_its_job_is_refused_where_the_job_is_chosen(world: World) -> None:
    answer = world.client(world.alice).post("/jobs/new/", order(world, **{"warm_start.version": "3"}))
    assert answer.status_code == 422
    assert answer.context["form"].errors["warm_start.job"]
    assert not world.sums.jobs.exists()


@pytest.mark.parametrize(("field", "end"), [("maximum", 2**31 - 1), ("minimum", 0)])
def test_the_browser_is_told_the_last_seed_that_the_door_takes(field: str, end: int) -> None:
    (seed,) = [knob for knob in knobs.knobs() if knob.path == "seed"]
    assert getattr(seed, field) == end
