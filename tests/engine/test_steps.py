from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from engine.events import StepData
from engine.ports import AdapterRef, PortError, RolloutRequest, Row
from engine.sim.fakes import fake_batch, fake_snapshot
from engine.spec import parse_job
from engine.steps import TrainTimes, certify, finite, rollout_ready_data, step_data, with_commit
from engine.trajectory import RolloutBatch, StaleBatch, encode

SHA = "0" * 64
SPEC = parse_job(
    {
        "base_model": "tiny",
        "dataset": {"version": "d", "train": {"sha256": SHA, "bytes": 1}, "train_rows": 9},
        "grader": {"type": "string_check"},
        "rollout": {"prompts_per_step": 2, "group_size": 2},
    }
)
ROWS = [Row(row=row, messages=[], item={}) for row in (3, 8)]


def batch() -> RolloutBatch:
    adapter = AdapterRef(tenant="t", job="job_a", version=1, load_id=7)
    files = fake_snapshot(job="job_a", version=1, digest="x")
    return fake_batch(RolloutRequest(adapter=adapter, attempt=2, spec=SPEC, rows=ROWS, seed=0, adapter_files=files, deadline_seconds=1))


def certified(found: RolloutBatch, **changes):
    return certify(encode(found), **{"job": "job_a", "version": 1, "attempt": 2, "spec": SPEC, "rows": ROWS, "loads": {5, 7}} | changes)


def test_a_whole_batch_is_certified_as_n_of_n():
    assert certified(batch()) == {"completions": 4, "on_policy": 4, "version": 1, "load_id": 7}


@pytest.mark.parametrize("change", [{"job": "job_b"}, {"version": 2}, {"attempt": 1}])
def test_a_batch_of_another_step_is_refused(change):
    with pytest.raises(StaleBatch):
        certified(batch(), **change)


def test_one_stale_trajectory_spoils_the_batch():
    found = batch()
    stale = replace(found.trajectories[3], policy_version=0)
    with pytest.raises(StaleBatch, match="row 8, sample 1"):
        certified(replace(found, trajectories=[*found.trajectories[:3], stale]))


def test_a_missing_a_double_and_a_foreign_completion_are_refused():
    found = batch()
    for wrong in (found.trajectories[:3], [*found.trajectories, found.trajectories[0]], [*found.trajectories[:3], found.trajectories[0]]):
        with pytest.raises(PortError, match="of the 4 asked for"):
            certified(replace(found, trajectories=wrong))


def test_a_batch_from_two_loads_is_refused():
    found = batch()
    with pytest.raises(PortError, match="2 loads"):
        certified(replace(found, trajectories=[replace(found.trajectories[0], load_id=8), *found.trajectories[1:]]))


def test_a_batch_from_a_load_that_nobody_ordered_is_refused():
    with pytest.raises(StaleBatch, match=r"used load 7 of the adapter, ordered were \[5, 8\]"):
        certified(batch(), loads={5, 8})


def measured(added_tokens: int = 0, judge_tokens: int = 0, **metrics) -> dict:
    added = {"env_tokens": added_tokens, "judge_tokens": judge_tokens}
    summary = batch().summary | {"env_seconds": 0.5, "reward_seconds": 1.5, **added}
    ready = rollout_ready_data(
        version=1, attempt=2, summary=summary, certificate=certified(batch()), idle_since=100.0, started=101.0, ready=111.0
    )
    usual = {"loss": 0.5, "grad_norm": 1.0, "entropy": 2.0, "clip_share": 0.0, "mismatch_kl": 1e-4, "learning_rate": 1e-3, "skipped": None}
    times = TrainTimes(started=113.0, trained=116.0)
    return step_data(ready=ready, metrics={**usual, "tokens": {"trained": 9}, **metrics}, times=times, adapter=b"weights")


def test_step_data_is_what_the_contract_says():
    step = StepData.model_validate(with_commit(measured(), TrainTimes(started=113.0, trained=116.0, committed=116.5)))
    assert (step.step, step.version, step.trained_from, step.attempt) == (2, 2, 1, 2)
    assert step.seconds == {
        "wait_rollout": 1.0, "rollout": 8.0, "env": 0.5, "reward": 1.5, "wait_train": 2.0, "train": 3.0, "commit": 0.5,
    }  # fmt: skip
    assert [span.phase for span in step.spans] == ["wait_rollout", "rollout", "wait_train", "train", "commit"]


def test_a_step_told_after_a_crash_has_every_figure_but_the_commits():
    step = StepData.model_validate(measured())
    assert step.seconds["commit"] == 0.0
    assert sum(step.seconds.values()) == 16.0


def test_the_certificate_joins_what_sampler_and_trainer_say():
    assert measured(certificate={"mismatch_kl": 0.25, "max_ratio": 1.5})["certificate"] == {
        "completions": 4, "on_policy": 4, "version": 1, "load_id": 7, "mismatch_kl": 0.25, "max_ratio": 1.5,
    }  # fmt: skip
    assert measured(max_ratio=3.0)["certificate"]["max_ratio"] == 3.0


def test_a_figure_that_is_no_number_is_none_and_never_zero():
    step = measured(loss=math.nan, grad_norm=math.inf, skipped="nonfinite")
    assert (step["loss"], step["grad_norm"], step["skipped"]) == (None, None, "nonfinite")
    assert finite({"a": [math.nan, 1.0, "x"], "b": (-math.inf,)}) == {"a": [None, 1.0, "x"], "b": [None]}


def test_every_figure_of_the_trainer_reaches_the_step():
    told = {"clip_low_share": 0.1, "clip_high_share": 0.2, "importance_capped_share": 0.3, "max_ratio": 1.5, "base_kl": 0.4}
    more = {"overlong_penalty": -0.25, "updates": 6}
    step = StepData.model_validate(measured(**told, **more))
    assert {name: getattr(step, name) for name in told | more} == told | more


def test_a_step_of_an_earlier_release_still_loads():
    later = ("clip_low_share", "clip_high_share", "importance_capped_share", "max_ratio", "base_kl", "overlong_penalty", "updates")
    step = StepData.model_validate({name: value for name, value in measured().items() if name not in later})
    assert (step.base_kl, step.updates) == (None, None)


def test_what_environments_added_is_billed_as_prefill():
    plain, told = measured()["tokens"], measured(added_tokens=50)["tokens"]

    assert (told["prefill"], told["sampled"]) == (plain["prefill"] + 50, plain["sampled"])


def test_tokens_of_judges_have_a_kind_of_their_own():
    assert (measured()["tokens"]["judge"], measured(judge_tokens=70)["tokens"]["judge"]) == (0, 70)
