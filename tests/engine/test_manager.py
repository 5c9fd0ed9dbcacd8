from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest

from engine.audit import audit
from engine.core.policy import shipped
from engine.driver import Deadlines
from engine.errors import Conflict, Invalid, NotFound
from engine.ports import PortError
from engine.store import Store
from engine.work import Work
from tests.engine.world import World, policy

pytestmark = pytest.mark.asyncio


# A job's way


async def test_a_job_runs_to_its_last_version(world):
    await world.submit("job_a", steps=3)
    ended = (await world.ended("job_a"))["job_a"]
    assert (ended["state"], ended["version"]) == ("succeeded", 3)
    assert [event.data["version"] for event in world.events("job_a", "step")] == [1, 2, 3]


async def test_a_job_tells_its_story_in_order(world):
    await world.submit("job_a", steps=1)
    await world.ended("job_a")
    assert world.kinds("job_a") == ["accepted", "admitted", "rollout_started", "rollout_ready", "train_started", "step", "ended"]


async def test_several_jobs_roll_out_at_once_and_train_one_at_a_time(world):
    jobs = [f"job_{n}" for n in range(4)]
    gates = [world.script.gate("rollout", job, 0) for job in jobs]
    for job in jobs:
        await world.submit(job, tenant=f"ten_{job}", steps=3)
    await world.until(lambda: len(world.rollout.running) == 4)
    for gate in gates:
        gate.set()
    ended = await world.ended(*jobs)
    assert {data["state"] for data in ended.values()} == {"succeeded"}
    assert world.train.most_at_once == 1


async def test_while_one_version_is_committed_the_trainer_takes_the_next_batch(world, monkeypatch):
    commit, on_disk = Store.commit, threading.Event()

    def slow_for_a(store, job, *rest):
        assert job != "job_a" or on_disk.wait(timeout=50)
        commit(store, job, *rest)

    monkeypatch.setattr(Store, "commit", slow_for_a)
    await world.submit("job_a", tenant="ten_a", steps=2)
    await world.called("step", "job_a")
    await world.submit("job_b", tenant="ten_b", steps=1)
    assert (await world.ended("job_b"))["job_b"]["state"] == "succeeded"
    assert (world.events("job_a", "step"), len(world.script.made("rollout", "job_a"))) == ([], 1)
    on_disk.set()
    assert (await world.ended("job_a"))["job_a"]["state"] == "succeeded"
    assert world.train.most_at_once == 1


async def test_the_next_batch_is_handed_to_the_trainer_while_the_last_is_at_work(world):
    gate = world.script.gate("step", "job_a", 0)
    await world.submit("job_a", tenant="ten_a", steps=1)
    await world.called("step", "job_a")
    await world.submit("job_b", tenant="ten_b", steps=1)
    await world.called("prepare", "job_b")
    gate.set()
    assert (await world.ended("job_a", "job_b"))["job_b"]["state"] == "succeeded"
    order = [(call.call, call.job) for call in world.script.calls if call.call in ("prepare", "step")]
    assert order == [("step", "job_a"), ("prepare", "job_b"), ("step", "job_b")]


async def test_a_batch_that_could_not_be_prepared_is_trained_on_in_its_turn(world, caplog):
    gate = world.script.gate("step", "job_a", 0)
    world.script.fail("prepare", "job_b", error=PortError("the ranks gather"))
    await world.submit("job_a", tenant="ten_a", steps=1)
    await world.called("step", "job_a")
    await world.submit("job_b", tenant="ten_b", steps=1)
    await world.called("prepare", "job_b")
    gate.set()
    assert (await world.ended("job_b"))["job_b"]["state"] == "succeeded"
    assert "the ranks gather" in caplog.text


async def test_a_step_says_everything_about_itself(world):
    await world.submit("job_a", steps=1)
    await world.ended("job_a")
    [step] = [event.data for event in world.events("job_a", "step")]
    assert (step["step"], step["version"], step["trained_from"], step["attempt"], step["attribution"]) == (1, 1, 0, 1, "user")
    assert step["tokens"] == {"prefill": 16, "sampled": 32, "judge": 0, "trained": 32}
    assert step["certificate"] | {"load_id": 0} == {
        "completions": 8, "on_policy": 8, "version": 0, "load_id": 0, "mismatch_kl": 0.0, "max_ratio": 1.0,
    }  # fmt: skip
    assert [span["phase"] for span in step["spans"]] == ["wait_rollout", "rollout", "wait_train", "train", "commit"]


async def test_the_phases_of_a_step_add_up_to_its_latency(world):
    await world.submit("job_a", steps=2)
    await world.ended("job_a")
    first, second = world.events("job_a", "step")
    assert sum(second.data["seconds"].values()) == pytest.approx((second.at - first.at).total_seconds(), abs=1e-5)


async def test_an_ending_carries_the_times_that_are_compared(world):
    await world.submit("job_a", steps=3)
    ended = (await world.ended("job_a"))["job_a"]
    steps = world.events("job_a", "step")
    submitted_at = world.events("job_a", "accepted")[0].at.replace(microsecond=0)
    assert ended["ttfs_seconds"] == pytest.approx(10 + (steps[0].at - submitted_at).total_seconds())
    assert ended["tpts_seconds"] == pytest.approx((steps[2].at - steps[0].at).total_seconds() / 2)
    assert ended["completion_seconds"] > ended["ttfs_seconds"]


async def test_jobs_enter_the_queue_in_the_order_of_their_acceptance(world):
    gate = world.script.gate("fresh", "job_0")
    for n in range(3):
        await world.submit(f"job_{n}", steps=1)
    gate.set()
    await world.ended("job_0", "job_1", "job_2")
    admitted = [world.events(f"job_{n}", "admitted")[0].offset for n in range(3)]
    assert admitted == sorted(admitted)


async def test_a_job_waits_for_its_place_and_is_told_why_once(world):
    gates = [world.script.gate("rollout", f"job_{n}", 0) for n in range(4)]
    for n in range(6):
        await world.submit(f"job_{n}")
    await world.seen("job_5", "waiting")
    for gate in gates:
        gate.set()
    await world.ended("job_4")
    assert [event.data["code"] for event in world.events("job_4", "waiting")] == ["slots"]
    assert world.kinds("job_4")[:3] == ["accepted", "waiting", "admitted"]


async def test_a_job_larger_than_the_budget_is_warned_and_runs(tmp_path):
    world = World(tmp_path)
    await world.open(policy=policy().__class__(max_active=4, kv_budget_bytes=100))
    await world.submit("job_a")
    assert (await world.ended("job_a"))["job_a"]["state"] == "succeeded"
    assert [event.data["code"] for event in world.events("job_a", "warning")] == ["runs_alone"]
    await world.manager.stop()


# The door


async def test_the_same_submission_twice_is_one_job(world):
    body = world.submission()
    assert await world.manager.submit("job_a", body) == {"job": "job_a", "created": True}
    assert await world.manager.submit("job_a", body) == {"job": "job_a", "created": False}
    assert world.kinds("job_a").count("accepted") == 1


async def test_two_submissions_at_the_same_moment_are_one_job(world):
    body = world.submission()
    answers = await asyncio.gather(*(world.manager.submit("job_a", body) for _ in range(5)))
    assert sorted(answer["created"] for answer in answers) == [False] * 4 + [True]


async def test_another_body_for_a_known_job_is_a_conflict(world):
    await world.submit("job_a", steps=2)
    with pytest.raises(Conflict):
        await world.submit("job_a", steps=3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"base_model": "other"}, "base_model"),
        ({"lora": {"rank": 32, "target_modules": ["q_proj"]}}, "lora.rank"),
        ({"rollout": {"max_prompt_tokens": 100, "max_new_tokens": 100}}, "rollout.max_new_tokens"),
        ({"rollout": {"group_size": 0}}, "spec.rollout.group_size"),
        ({"surprise": 1}, "spec.surprise"),
    ],
)
async def test_what_cannot_run_is_refused_by_field_and_leaves_nothing(world, change, field):
    body = world.submission()
    body["spec"] |= change
    with pytest.raises(Invalid) as refused:
        await world.manager.submit("job_a", body)
    assert [name for name, _ in refused.value.problems] == [field]
    assert world.events("job_a") == []


async def test_a_dataset_that_is_not_there_is_refused(world):
    body = world.submission()
    body["spec"]["dataset"]["train"] = {"sha256": "0" * 64, "bytes": 1}
    with pytest.raises(Invalid, match=r"dataset\.train"):
        await world.manager.submit("job_a", body)


async def test_a_dataset_with_another_number_of_rows_is_refused(world):
    body = world.submission()
    body["spec"]["dataset"]["train_rows"] = 21
    with pytest.raises(Invalid, match="20 rows, not 21"):
        await world.manager.submit("job_a", body)


@pytest.mark.parametrize("job", ["", "../x", "a/b", "x" * 65, ".hidden"])
async def test_a_jobs_name_cannot_be_a_path(world, job):
    with pytest.raises(Invalid):
        await world.manager.submit(job, world.submission())


async def test_an_estimate_names_footprint_and_problems(world):
    spec = world.submission()["spec"]
    assert await world.manager.estimate(spec) == {"kv_bytes": 128, "budget_bytes": 10_000, "runs_alone": False, "problems": []}
    answer = await world.manager.estimate(spec | {"base_model": "other"})
    assert answer["problems"][0]["field"] == "base_model"


# Stopping, pausing


async def test_a_cancelled_rollout_is_aborted_and_its_adapters_go(world):
    world.script.gate("rollout", "job_a")
    await world.submit("job_a")
    await world.called("rollout", "job_a")
    await world.manager.cancel("job_a", "enough")
    ended = (await world.ended("job_a"))["job_a"]
    assert (ended["state"], ended["reason"], ended["attribution"]) == ("cancelled", "enough", "user")
    await world.called("abort", "job_a")
    await world.until(lambda: world.rollout.loaded == {})


async def test_a_training_that_has_begun_commits_before_the_cancel(world):
    gate = world.script.gate("step", "job_a")
    await world.submit("job_a")
    await world.called("step", "job_a")
    await world.manager.cancel("job_a")
    gate.set()
    assert (await world.ended("job_a"))["job_a"] | {"version": 1, "state": "cancelled"} == (await world.ended("job_a"))["job_a"]
    assert len(world.events("job_a", "step")) == 1


async def test_a_cancel_while_version_0_is_made_ends_the_job(world):
    gate = world.script.gate("fresh", "job_a")
    await world.submit("job_a")
    await world.manager.cancel("job_a")
    gate.set()
    assert (await world.ended("job_a"))["job_a"]["state"] == "cancelled"
    assert world.script.made("rollout", "job_a") == []


async def test_cancelling_twice_is_one_cancel(world):
    gate = world.script.gate("step", "job_a")
    await world.submit("job_a")
    await world.seen("job_a", "train_started")
    await world.manager.cancel("job_a")
    await world.manager.cancel("job_a")
    gate.set()
    await world.ended("job_a")
    assert world.kinds("job_a").count("stop_requested") == 1


async def test_a_paused_job_commits_its_step_then_holds_then_goes_on(world):
    gate = world.script.gate("rollout", "job_a", 0)
    await world.submit("job_a", steps=2)
    await world.seen("job_a", "rollout_started")
    await world.manager.pause("job_a")
    gate.set()
    assert (await world.seen("job_a", "paused"))["data"] == {"version": 1}
    await world.until(lambda: world.rollout.loaded == {})
    await world.manager.resume("job_a")
    assert (await world.ended("job_a"))["job_a"]["version"] == 2


async def test_pausing_one_job_leaves_the_others_alone(world):
    await world.submit("job_a", steps=5)
    await world.submit("job_b", steps=5)
    await world.manager.pause("job_a")
    assert (await world.ended("job_b"))["job_b"]["state"] == "succeeded"


async def test_an_ended_job_takes_no_more_orders(world):
    await world.submit("job_a", steps=1)
    await world.ended("job_a")
    for order in (world.manager.cancel, world.manager.pause, world.manager.resume):
        with pytest.raises(Conflict):
            await order("job_a")
    with pytest.raises(Conflict):
        await world.manager.reprioritise("job_a", 1)


async def test_an_unknown_job_is_not_found(world):
    for order in (world.manager.cancel, world.manager.pause, world.manager.resume, world.manager.delete):
        with pytest.raises(NotFound):
            await order("job_x")


async def test_only_an_ended_job_can_be_deleted_and_then_again(world):
    gate = world.script.gate("rollout", "job_a")
    await world.submit("job_a", steps=1)
    with pytest.raises(Conflict):
        await world.manager.delete("job_a")
    gate.set()
    await world.ended("job_a")
    await world.manager.delete("job_a")
    await world.manager.delete("job_a")
    assert not (world.root / "engine/jobs/job_a").exists()
    assert (await world.manager.status())["jobs"] == []


async def test_paused_admission_lets_nobody_new_in_until_it_opens(world):
    await world.manager.set_admission("pause")
    await world.submit("job_a", steps=1)
    assert (await world.seen("job_a", "waiting"))["data"]["code"] == "admission"
    await world.manager.set_admission("open")
    assert (await world.ended("job_a"))["job_a"]["state"] == "succeeded"


async def test_a_running_job_is_told_of_each_drain(world):
    for drained in (1, 2):
        gate = world.script.gate("rollout", "job_a", drained - 1)
        if drained == 1:
            await world.submit("job_a", steps=3)
        await world.called("rollout", "job_a", times=drained)
        await world.manager.set_admission("drain")
        gate.set()
        await world.seen("job_a", "step", times=drained)
        await world.manager.set_admission("open")
    await world.ended("job_a")
    assert [event.data["code"] for event in world.events("job_a", "waiting")] == ["admission", "admission"]


async def test_a_bad_policy_or_mode_is_refused(world):
    for changes in ({"max_active": 0}, {"no_such": 1}):
        with pytest.raises(Invalid):
            await world.manager.set_policy(changes)
    with pytest.raises(Invalid):
        await world.manager.set_admission("shut")


async def test_the_policy_can_be_changed_while_running(world):
    assert (await world.manager.set_policy({"max_active": 1}))["max_active"] == 1
    assert (await world.manager.status())["slots"] == {"total": 1, "used": 0}


async def test_an_operator_can_let_small_jobs_past_one_that_fills_the_memory(tmp_path):
    world = World(tmp_path)
    await world.open(policy=dataclasses.replace(policy(), kv_budget_bytes=100))
    first, third = world.script.gate("rollout", "giant", 0), world.script.gate("rollout", "giant", 2)
    await world.submit("giant", steps=3)
    await world.called("rollout", "giant")
    await world.submit("small", tenant="ten_b", steps=1)
    assert (await world.seen("small", "waiting"))["data"]["code"] == "kv"
    await world.manager.set_policy({"kv_hold": "rollout", "admission_order": "fair"})
    first.set()
    assert (await world.ended("small"))["small"]["state"] == "succeeded"
    assert world.events("giant", "ended") == []
    third.set()
    await world.ended("giant")
    await world.manager.stop()


# Faults


async def test_a_lost_rollout_is_redone_under_the_next_attempt(world):
    world.script.fail("rollout", "job_a", 0)
    await world.submit("job_a", steps=1)
    await world.ended("job_a")
    [lost] = world.events("job_a", "rollout_lost")
    assert (lost.data["attempt"], lost.data["attribution"]) == (1, "platform")
    assert world.events("job_a", "step")[0].data["attempt"] == 2


async def test_a_lost_training_is_redone_from_the_same_batch(world):
    world.script.fail("step", "job_a", 0)
    await world.submit("job_a", steps=1)
    await world.ended("job_a")
    assert len(world.script.made("rollout", "job_a")) == 1
    assert [call.attempt for call in world.script.made("step", "job_a")] == [1, 1]


async def test_a_poisoned_job_fails_alone(world):
    world.script.fail("step", "job_a", error=RuntimeError("poison"), times=100)
    await world.submit("job_a", steps=3)
    await world.submit("job_b", steps=3)
    ended = await world.ended("job_a", "job_b")
    assert (ended["job_a"]["state"], ended["job_a"]["attribution"]) == ("failed", "platform")
    assert "poison" in ended["job_a"]["reason"]
    assert ended["job_b"]["state"] == "succeeded"


async def test_an_error_after_the_commit_gives_the_trainer_back(world, monkeypatch):
    def broken(self, job, step):
        if job == "job_a":
            raise RuntimeError("broken after the commit")

    monkeypatch.setattr(Work, "_warn_of_skipped", broken)
    await world.submit("job_a", steps=3)
    await world.submit("job_b", steps=3)
    ended = await world.ended("job_a", "job_b")
    assert (ended["job_a"]["state"], ended["job_a"]["attribution"]) == ("failed", "platform")
    assert ended["job_b"]["state"] == "succeeded"


async def test_a_users_fault_ends_the_job_at_once_in_his_name(world):
    world.script.fail("rollout", "job_a", error=PortError("a prompt is too long", attribution="user"))
    await world.submit("job_a")
    ended = (await world.ended("job_a"))["job_a"]
    assert (ended["state"], ended["reason"], ended["attribution"]) == ("failed", "a prompt is too long", "user")


async def test_a_job_without_a_version_0_ends_failed(world):
    world.script.fail("fresh", "job_a", times=3)
    await world.submit("job_a")
    ended = (await world.ended("job_a"))["job_a"]
    assert (ended["state"], ended["attribution"], ended["version"]) == ("failed", "platform", 0)


async def test_a_sampler_that_hangs_costs_its_job_an_attempt_and_no_more(tmp_path):
    world = World(tmp_path)
    world.script.gate("rollout", "job_a")
    await world.open(deadlines=Deadlines(rollout=0.01, grace=0))
    await world.submit("job_a", steps=1)
    await world.submit("job_b", steps=1)
    ended = await world.ended("job_a", "job_b")
    assert (ended["job_a"]["state"], ended["job_a"]["attribution"]) == ("failed", "platform")
    assert "no answer within 0.01 s" in ended["job_a"]["reason"]
    assert len(world.script.made("abort", "job_a")) >= 3
    assert ended["job_b"]["state"] == "succeeded"
    await world.manager.stop()


async def test_a_trainer_that_hangs_does_not_keep_the_others_waiting_for_ever(tmp_path):
    world = World(tmp_path)
    world.script.gate("step", "job_a")
    await world.open(deadlines=Deadlines(train=0.01, grace=0))
    await world.submit("job_a", steps=1)
    await world.submit("job_b", steps=1)
    ended = await world.ended("job_a", "job_b")
    assert (ended["job_a"]["state"], ended["job_b"]["state"]) == ("failed", "succeeded")
    await world.manager.stop()


# Evaluations


async def test_the_first_and_the_last_version_are_evaluated(world):
    await world.submit("job_a", steps=2, with_eval=True)
    await world.ended("job_a")
    assert [event.data["version"] for event in world.events("job_a", "eval")] == [0, 2]


async def test_an_evaluation_never_blocks_its_job(world):
    gate = world.script.gate("evaluate", "job_a", 0)
    await world.submit("job_a", steps=2, with_eval=True)
    await world.seen("job_a", "step", times=2)
    assert world.events("job_a", "eval") == []
    gate.set()
    await world.ended("job_a")


async def test_an_evaluation_that_the_platform_lost_is_made_again(world):
    world.script.fail("evaluate", "job_a", 0)
    await world.submit("job_a", steps=1, with_eval=True)
    await world.ended("job_a")
    assert [event.data["version"] for event in world.events("job_a", "eval")] == [0, 1]
    assert world.events("job_a", "warning") == []


async def test_an_evaluation_that_fails_again_and_again_is_a_warning(world):
    world.script.fail("evaluate", "job_a", 0, times=3)
    await world.submit("job_a", steps=1, with_eval=True)
    assert (await world.ended("job_a"))["job_a"]["state"] == "succeeded"
    assert [event.data["code"] for event in world.events("job_a", "warning")] == ["eval_failed"]


async def test_the_adapter_that_an_evaluation_uses_stays_loaded(world):
    gate = world.script.gate("evaluate", "job_a", 0)
    await world.submit("job_a", steps=3, with_eval=True)
    await world.called("rollout", "job_a", times=3)
    assert world.rollout.loaded["job_a"] == {0, 1, 2}
    gate.set()
    await world.ended("job_a")
    await world.until(lambda: world.rollout.loaded == {})


async def test_rollout_and_evaluation_of_a_version_share_one_load(world):
    await world.submit("job_a", steps=3, with_eval=True, eval_every=1)
    await world.ended("job_a")
    loads = list(world.rollout._load_ids.values())
    assert sorted(loads) == [f"job_a@{version}" for version in range(4)]


async def test_a_paused_job_leaves_no_adapter_behind_even_after_an_evaluation(world):
    gate = world.script.gate("evaluate", "job_a", 1)
    step = world.script.gate("step", "job_a", 0)
    await world.submit("job_a", steps=2, with_eval=True, eval_every=1)
    await world.called("step", "job_a")
    await world.manager.pause("job_a")
    step.set()
    await world.seen("job_a", "paused")
    await world.until(lambda: world.rollout.loaded.get("job_a") == {1})
    gate.set()
    await world.until(lambda: world.rollout.loaded == {})


async def test_old_adapters_go_after_the_commit(world):
    gate = world.script.gate("rollout", "job_a", 2)
    await world.submit("job_a", steps=3)
    await world.seen("job_a", "step", times=2)
    await world.until(lambda: world.rollout.loaded.get("job_a") == {2})
    gate.set()
    await world.ended("job_a")


# Looking


async def test_status_shows_where_each_job_stands(world):
    world.script.gate("rollout", "job_a")
    await world.submit("job_a", tenant="ten_z", steps=7)
    await world.seen("job_a", "rollout_started")
    status = await world.manager.status()
    [job] = status["jobs"]
    assert job | {"reason": ""} == {
        "job": "job_a", "tenant": "ten_z", "state": "running", "phase": "rollout", "version": 0, "steps": 7, "position": None, "reason": "",
        "next_seconds": None, "eta_seconds": None, "began_seq": 0,
    }  # fmt: skip
    assert (status["admission"], status["kv"]["reserved_bytes"], status["slots"]["used"]) == ("open", 128, 1)


async def test_the_adapter_of_each_version_and_of_the_latest_can_be_fetched(world):
    await world.submit("job_a", steps=2)
    await world.ended("job_a")
    assert (await world.manager.adapter("job_a", None))[0] == 2
    version, files = await world.manager.adapter("job_a", 1)
    assert version == 1 and files["adapter_model.safetensors"].startswith(b"weights job_a@1:")
    with pytest.raises(NotFound):
        await world.manager.adapter("job_a", 3)


async def test_the_rollouts_of_a_version_are_paged_with_their_prompts(world):
    await world.submit("job_a", steps=2)
    await world.ended("job_a")
    page = await world.manager.rollouts("job_a", 0, offset=6, limit=5)
    assert (page["version"], page["attempt"], page["total"], len(page["trajectories"])) == (0, 1, 8, 2)
    first = page["trajectories"][0]
    assert first["prompt"] == f"{first['row']}+1="
    assert (await world.manager.rollouts("job_a", None, offset=0, limit=1))["version"] == 1
    with pytest.raises(NotFound):
        await world.manager.rollouts("job_a", 9, offset=0, limit=1)


async def test_tenants_are_charged_with_the_tokens_that_were_served(world):
    await world.submit("job_a", steps=1)
    await world.ended("job_a")
    [ready] = world.events("job_a", "rollout_ready")
    summary = ready.data["summary"]
    fair = world.manager._driver.scheduler.admission.fair
    assert fair.expected(8 * 16) == summary["prompt_tokens"] + summary["sampled_tokens"]  # a step of 8 completions of 16 tokens at most


async def test_as_shipped_a_small_job_waits_for_a_step_of_a_large_one_not_for_its_end(tmp_path):
    world = World(tmp_path)
    await world.open(policy=shipped("marlaas", slots=1, kv_budget_bytes=10_000))
    gate, later = world.script.gate("rollout", "large", 0), world.script.gate("rollout", "large", 2)
    await world.submit("large", steps=100)
    await world.called("rollout", "large")
    await world.submit("small", tenant="ten_b", steps=1)
    assert (await world.seen("small", "waiting"))["data"]["code"] == "slots"
    gate.set()
    assert (await world.ended("small"))["small"]["state"] == "succeeded"
    assert len(world.events("large", "step")) <= 2
    later.set()
    await world.manager.stop()


async def test_as_shipped_three_small_jobs_roll_out_together(tmp_path):
    world = World(tmp_path)
    await world.open(policy=shipped("marlaas", slots=8, kv_budget_bytes=10_000))
    for job in ("job_a", "job_b", "job_c"):
        world.script.gate("rollout", job, 0)
        await world.submit(job, tenant=f"ten_{job}")
    await world.until(lambda: len(world.rollout.running) == 3)
    await world.manager.stop()


async def test_the_status_says_when_each_job_goes_on_and_ends(tmp_path):
    world = World(tmp_path)
    await world.open(policy=dataclasses.replace(policy(), max_active=1))
    world.script.gate("rollout", "job_a", 1)
    await world.submit("job_a", steps=3)
    await world.called("rollout", "job_a", times=2)
    await world.submit("job_b", steps=1)
    await world.seen("job_b", "waiting")
    running, waiting = (await world.manager.status())["jobs"]
    assert 0 <= running["next_seconds"] <= running["eta_seconds"] <= waiting["eta_seconds"]
    assert world.events("job_b", "waiting")[0].data["eta_seconds"] is not None
    await world.manager.stop()


async def test_an_accepted_jobs_secret_stays_in_the_journal(world):
    submission = world.submission()
    http = {"type": "http", "url": "https://grader.example.com/", "signing_secret": "s3cret-" * 4}
    submission["spec"]["grader"] = {"type": "multi", "graders": {"a": http}, "calculate_output": "a"}
    await world.manager.submit("a", submission)
    told = (await world.seen("a", "accepted"))["data"]["submission"]["spec"]["grader"]

    assert "s3cret" not in str(await world.manager.events(0, 0, 100))
    assert told["graders"]["a"]["url"] == "https://grader.example.com/"
    assert "s3cret" in str(world.events("a", "accepted"))


async def test_one_version_of_an_ended_job_can_be_deleted_and_the_others_stay(world):
    gate = world.script.gate("rollout", "job_a")
    await world.submit("job_a", steps=3)
    with pytest.raises(Conflict):
        await world.manager.delete_version("job_a", 0)
    gate.set()
    await world.ended("job_a")
    for _ in range(2):
        await world.manager.delete_version("job_a", 1)
    with pytest.raises(NotFound):
        await world.manager.adapter("job_a", 1)
    assert [(await world.manager.adapter("job_a", version))[0] for version in (2, 3)] == [2, 3]
    with pytest.raises(Conflict):
        await world.manager.delete_version("job_a", 3)
    with pytest.raises(NotFound):
        await world.manager.delete_version("job_a", 4)
    told = [event.data for event in world.events("job_a", "version_deleted")]
    assert told == [{"version": 1}]


async def test_what_an_ended_job_sampled_can_be_deleted_and_its_versions_stay(world, tmp_path):
    gate = world.script.gate("rollout", "job_a")
    await world.submit("job_a", steps=2, with_eval=True)
    with pytest.raises(Conflict):
        await world.manager.delete_completions("job_a")
    gate.set()
    await world.ended("job_a")
    for _ in range(2):
        await world.manager.delete_completions("job_a")
    with pytest.raises(NotFound):
        await world.manager.rollouts("job_a", None, offset=0, limit=1)
    with pytest.raises(NotFound):
        await world.manager.evaluation("job_a", None, against=0, change=None, offset=0, limit=1)
    assert (await world.manager.adapter("job_a", 2))[0] == 2
    assert len(world.events("job_a", "completions_deleted")) == 1
    assert audit(world.root / "engine") == []
