"""What the door refuses, and that nothing is left behind when it does."""

from __future__ import annotations

from typing import Any

import pytest

from portal.datasets.actions import create_dataset
from portal.errors import Conflict, Invalid
from portal.jobs import actions, catalog, door
from portal.jobs.models import EngineModel, Job, JobCommand, JobSubmission
from portal.rewards.actions import create_reward
from tenants.access import Forbidden
from tests.portal.fake_engine import TINY, FakeEngine
from tests.portal.world import NOW, World, jsonl


def problems(world: World, raw: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as refused:
        door.check(world.sums, raw, NOW)
    return dict(refused.value.problems)


BAD_FIELDS = [
    ({"base_model": "gpt-17"}, "base_model", "tiny-math"),
    ({"rollout": {"group_size": 0}}, "rollout.group_size", "greater"),
    ({"rollout": {"group_size": 1}}, "rollout.group_size", "greater"),
    ({"lora": {"rank": 99}}, "lora.rank", "at most 16"),
    ({"lora": {"target_modules": ["lm_head"]}}, "lora.target_modules", "lm_head"),
    ({"rollout": {"max_prompt_tokens": 100, "max_new_tokens": 100}}, "rollout.max_new_tokens", "128"),
    ({"train": {"learning_rate": "fast"}}, "train.learning_rate", "number"),
    ({"train": {"learning_rate": float("nan")}}, "train.learning_rate", "finite"),
    ({"train": {"lr": 1e-3}}, "train.lr", "not permitted"),
    ({"colour": "blue"}, "colour", "not permitted"),
    ({"grader": {"type": "numeric"}}, "grader", "reward"),
    ({"seed": -1}, "seed", "greater"),
    ({"dataset": "ds_aaaaaaaaaaaaaaaaaaaa"}, "dataset", "no dataset"),
    ({"dataset": "ds_\x00"}, "dataset", "no dataset"),
    ({"dataset": None}, "dataset", "choose"),
    ({"dataset": {"version": "x"}}, "dataset", "choose"),
    ({"reward": "rw_aaaaaaaaaaaaaaaaaaaa"}, "reward", "no reward"),
    ({"name": "x" * 101}, "name", "100"),
    ({"name": ["x"]}, "name", "text"),
]


@pytest.mark.parametrize(("change", "field", "word"), BAD_FIELDS, ids=[f"{field}-{n}" for n, (_, field, _) in enumerate(BAD_FIELDS)])
def test_a_bad_field_is_named(world: World, change: dict, field: str, word: str) -> None:
    assert word in problems(world, {**world.order(), **change})[field]


@pytest.mark.parametrize("raw", [None, [], "x", 7])
def test_what_is_no_object_is_refused(world: World, raw: Any) -> None:
    assert "spec" in problems(world, raw)


def test_all_faults_are_told_at_once(world: World) -> None:
    raw = {"dataset": "ds_x", "reward": "rw_x", "base_model": "tiny-math", "rollout": {"group_size": 0}, "lora": {"rank": 0}}
    assert problems(world, raw).keys() == {"dataset", "reward", "rollout.group_size", "lora.rank"}


def test_more_prompts_than_rows_are_refused(world: World) -> None:
    raw = {**world.order(), "dataset": world.dataset(rows=10).public_id}
    assert "only 9 training rows" in " ".join(problems(world, raw).values())


def test_a_strangers_dataset_does_not_exist(world: World) -> None:
    foreign = world.dataset(world.charlie).public_id
    unknown = problems(world, {**world.order(), "dataset": "ds_aaaaaaaaaaaaaaaaaaaa"})["dataset"]
    assert problems(world, {**world.order(), "dataset": foreign})["dataset"] == unknown.replace("ds_aaaaaaaaaaaaaaaaaaaa", foreign)


def test_a_reward_must_fit_the_datasets_columns(world: World) -> None:
    file = jsonl(*({"prompt": f"{n}", "outcome": n} for n in range(40)))
    dataset = create_dataset(world.sums, world.alice, "other columns", file)
    found = problems(world, {**world.order(), "dataset": dataset.public_id})["grader.reference"]
    assert "no column answer" in found
    assert "outcome, prompt" in found or "prompt, outcome" in found


def test_a_column_that_some_rows_lack_cannot_be_graded(world: World) -> None:
    rows = [{"prompt": f"{n}", "answer": "1"} for n in range(40)]
    del rows[7]["answer"]
    dataset = create_dataset(world.sums, world.alice, "ragged", jsonl(*rows))
    assert "grader.reference" in problems(world, {**world.order(), "dataset": dataset.public_id})


def test_a_refused_job_leaves_nothing(world: World, engine: FakeEngine) -> None:
    with pytest.raises(Invalid):
        actions.create_job(world.sums, world.alice, world.order(lora={"rank": 99}), NOW)
    assert (Job.objects.count(), JobSubmission.objects.count(), engine.jobs) == (0, 0, {})


def test_the_submission_carries_the_tenant_and_the_moment(world: World) -> None:
    body = world.job().submission.body
    assert (body["tenant"], body["submitted_at"]) == (world.sums.public_id, "2026-01-01T12:00:00Z")


def test_a_job_pins_dataset_and_reward(world: World) -> None:
    job = world.job()
    assert job.spec["dataset"]["version"] == job.dataset.public_id
    assert job.spec["grader"] == job.reward.grader


def test_the_door_works_while_the_engine_is_down(world: World, engine: FakeEngine) -> None:
    catalog.known_models(NOW)
    engine.down = True
    assert world.job(base_model="tiny-math").state == "submitted"


def test_before_the_engine_ever_answered_the_door_says_so(world: World, engine: FakeEngine) -> None:
    engine.down = True
    assert "has not answered yet" in problems(world, world.order())["base_model"]


def test_what_the_engine_can_do_is_asked_again_after_a_while(world: World, engine: FakeEngine) -> None:
    catalog.known_models(NOW)
    engine.models = [TINY.model_copy(update={"max_rank": 4})]
    assert catalog.known_models(NOW)[0].max_rank == 16
    assert catalog.known_models(NOW + 2 * catalog.FRESH_FOR)[0].max_rank == 4


def test_models_that_are_gone_are_forgotten(world: World, engine: FakeEngine) -> None:
    catalog.refresh(NOW)
    engine.models = [TINY.model_copy(update={"name": "other"})]
    catalog.refresh(NOW)
    assert list(EngineModel.objects.values_list("name", flat=True)) == ["other"]


def test_the_same_key_and_body_give_the_same_job(world: World) -> None:
    raw = world.order()
    first = actions.create_job(world.sums, world.alice, raw, NOW, idempotency_key="k")
    second = actions.create_job(world.sums, world.alice, dict(reversed(raw.items())), NOW, idempotency_key="k")
    assert (first.pk, Job.objects.count()) == (second.pk, 1)


def test_the_same_key_with_another_body_is_a_conflict(world: World) -> None:
    raw = world.order()
    actions.create_job(world.sums, world.alice, raw, NOW, idempotency_key="k")
    with pytest.raises(Conflict):
        actions.create_job(world.sums, world.alice, {**raw, "seed": 1}, NOW, idempotency_key="k")


def test_keys_of_different_tenants_do_not_meet(world: World) -> None:
    actions.create_job(world.sums, world.alice, world.order(), NOW, idempotency_key="k")
    actions.create_job(world.other, world.charlie, world.order(world.charlie), NOW, idempotency_key="k")
    assert Job.objects.count() == 2


def test_members_start_jobs_and_viewers_do_not(world: World) -> None:
    actions.create_job(world.sums, world.bob, world.order(), NOW)
    with pytest.raises(Forbidden):
        actions.create_job(world.sums, world.vera, world.order(), NOW)


def test_a_member_may_create_a_reward_and_a_stranger_not(world: World) -> None:
    create_reward(world.sums, world.bob, "mine", {"type": "numeric"})
    with pytest.raises(Forbidden):
        create_reward(world.sums, world.charlie, "mine", {"type": "numeric"})


def test_a_double_click_is_one_command(world: World) -> None:
    job = world.job()
    actions.cancel_job(world.sums, world.alice, job, NOW)
    actions.cancel_job(world.sums, world.alice, job, NOW)
    assert JobCommand.objects.count() == 1


def test_an_ended_job_cannot_be_cancelled(world: World) -> None:
    job = world.job()
    Job.objects.filter(pk=job.pk).update(**{"state": "succeeded"})
    with pytest.raises(Conflict, match="already succeeded"):
        actions.cancel_job(world.sums, world.alice, job, NOW)


def test_only_a_paused_job_is_resumed(world: World) -> None:
    job = world.job()
    with pytest.raises(Conflict):
        actions.resume_job(world.sums, world.alice, job, NOW)
    actions.pause_job(world.sums, world.alice, job, NOW)
    actions.resume_job(world.sums, world.alice, job, NOW)  # a change of mind while the pause is on its way


def test_a_command_does_not_touch_the_state(world: World) -> None:
    job = world.job()
    actions.cancel_job(world.sums, world.alice, job, NOW)
    job.refresh_from_db()
    assert job.state == "submitted"


def test_viewers_do_not_cancel(world: World) -> None:
    with pytest.raises(Forbidden):
        actions.cancel_job(world.sums, world.vera, world.job(), NOW)


def test_what_only_the_engine_can_tell_is_told_at_the_door(world: World, engine: FakeEngine) -> None:
    engine.objections = [{"field": "rollout.max_prompt_tokens", "message": "row 3 has a prompt of 99 tokens"}]
    with pytest.raises(Invalid) as refused:
        actions.create_job(world.sums, world.alice, world.order(), NOW)
    assert refused.value.problems == [("rollout.max_prompt_tokens", "row 3 has a prompt of 99 tokens")]
    assert not Job.objects.exists()
