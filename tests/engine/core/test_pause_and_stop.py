"""Pause and cancel at every phase."""

from __future__ import annotations

import pytest

from engine.core import messages as m
from tests.engine.core.house import House


def test_a_queued_job_is_held_at_once():
    house = House(max_active=1)
    house.submit("a")
    house.submit("b")
    assert house.pause("b") == ["hold b"]


def test_a_held_job_is_not_admitted():
    house = House(max_active=1)
    house.submit("a", steps=1)
    house.submit("b")
    house.pause("b")
    assert house.step("a") == ["release a succeeded"]


def test_a_pause_lets_the_running_step_commit_first():
    house = House()
    house.submit("a")
    assert house.pause("a") == []
    assert house.rolled("a") == ["train a 0/1"]
    assert house.trained("a") == ["hold a"]


def test_a_pause_during_training_holds_after_the_commit():
    house = House()
    house.submit("a")
    house.rolled("a")
    house.pause("a")
    assert house.trained("a") == ["hold a"]


def test_a_paused_rollout_that_is_lost_holds_without_another_attempt():
    house = House()
    house.submit("a")
    house.pause("a")
    assert house.rollout_failed("a") == ["hold a"]
    assert house.resume("a") == ["admit a", "rollout a 0/2"]


def test_a_paused_training_that_is_lost_is_redone_before_the_hold():
    house = House()
    house.submit("a")
    house.rolled("a")
    house.pause("a")
    assert house.train_failed("a") == ["train a 0/1"]
    assert house.trained("a") == ["hold a"]


def test_an_idle_job_is_held_at_once():
    house = House(max_rollouts=1)
    house.submit("a")
    house.submit("b")
    assert house.pause("b") == ["hold b"]


def test_a_held_job_frees_its_place_for_others():
    house = House(max_active=1)
    house.submit("a")
    house.submit("b")
    house.pause("a")
    house.rolled("a")
    assert house.trained("a") == ["hold a", "admit b", "rollout b 0/1"]


def test_a_resumed_job_goes_on_from_its_version():
    house = House()
    house.submit("a")
    house.pause("a")
    house.step("a")
    assert house.resume("a") == ["admit a", "rollout a 1/1"]


def test_a_resumed_job_queues_in_its_old_order():
    house = House(max_active=1)
    house.submit("a")
    house.submit("b", steps=1)
    house.submit("c")
    house.pause("a")
    house.step("a")
    house.resume("a")
    assert house.step("b") == ["release b succeeded", "admit a", "rollout a 1/1"]


def test_a_pause_that_is_taken_back_in_time_changes_nothing():
    house = House()
    house.submit("a")
    house.pause("a")
    house.resume("a")
    assert house.step("a") == ["rollout a 1/1"]


def test_a_second_pause_changes_nothing():
    house = House()
    house.submit("a")
    house.pause("a")
    house.step("a")
    assert house.pause("a") == []


def test_a_pause_in_the_last_step_does_not_keep_the_job_from_its_end():
    house = House()
    house.submit("a", steps=1)
    house.pause("a")
    assert house.step("a") == ["release a succeeded"]


def test_pausing_one_job_leaves_the_others_alone():
    house = House()
    house.submit("a")
    house.submit("b")
    house.pause("a")
    assert house.step("b") == ["rollout b 1/1"]


def test_a_cancelled_rollout_is_aborted_and_the_job_released():
    house = House()
    house.submit("a")
    assert house.cancel("a") == ["abort a", "release a cancelled"]


def test_a_training_that_has_started_commits_before_the_release():
    house = House()
    house.submit("a")
    house.rolled("a")
    assert house.cancel("a") == []
    assert house.trained("a") == ["release a cancelled"]


def test_a_cancelled_training_that_is_lost_is_not_redone():
    house = House()
    house.submit("a")
    house.rolled("a")
    house.cancel("a")
    assert house.train_failed("a") == ["release a cancelled"]


def test_a_ready_batch_of_a_cancelled_job_is_not_trained_on():
    house = House()
    house.submit("a")
    house.submit("b")
    house.rolled("a")
    house.rolled("b")
    assert house.cancel("b") == ["release b cancelled"]
    assert house.trained("a") == ["rollout a 1/1"]


def test_queued_and_held_jobs_are_released_at_once():
    house = House(max_active=1)
    for job in "abc":
        house.submit(job)
    house.pause("c")
    assert house.cancel("b") == ["release b cancelled"]
    assert house.cancel("c") == ["release c cancelled"]


def test_a_cancelled_job_frees_its_place():
    house = House(max_active=1)
    house.submit("a")
    house.submit("b")
    assert house.cancel("a") == ["abort a", "release a cancelled", "admit b", "rollout b 0/1"]


def test_the_first_stop_decides_how_the_job_ends():
    house = House()
    house.submit("a")
    house.rolled("a")
    house.cancel("a")
    house.tell(m.Stopped, job="a", outcome="failed", reason="later", attribution="platform")
    assert house.trained("a") == ["release a cancelled"]


def test_the_release_carries_reason_and_attribution_of_the_stop():
    house = House()
    house.submit("a")
    house.cancel("a")
    assert (house.ending().reason, house.ending().attribution) == ("asked to", "user")


def test_a_cancel_aborts_an_evaluation_that_is_under_way():
    house = House()
    house.submit("a", eval_ends=True)
    house.rolled("a")
    house.cancel("a")
    assert house.trained("a") == ["abort a", "release a cancelled"]


# Every phase, however places are held

HOLDS = ({}, {"kv_hold": "rollout"}, {"admission_order": "fair", "kv_hold": "rollout", "slot_hold": "step"})
PHASES = ("queued", "idle", "rollout", "ready", "training", "evaluating", "held")


def house_with_a_in(phase: str, policy: dict[str, str]) -> House:
    """Job a in ``phase``; job b wherever it must be for that."""
    house = House(**{"max_active": 1 if phase == "queued" else 8, "max_rollouts": 1, "kv_budget_bytes": 100, **policy})
    if phase in ("queued", "idle", "ready"):
        house.submit("b")
    if phase == "ready":
        house.rolled("b")
    house.submit("a", steps=1 if phase == "evaluating" else 3, eval_ends=phase == "evaluating", paused=phase == "held")
    if phase in ("ready", "training", "evaluating"):
        house.rolled("a")
    if phase == "evaluating":
        house.trained("a")
    return house


def check_nothing_is_held(house: House) -> None:
    admission, pipeline = house.scheduler.admission, house.scheduler.pipeline
    assert (len(admission.slots), admission.kv.reserved_bytes, len(admission.queue)) == (0, 0, 0)
    assert (pipeline.rolling, pipeline.training, len(pipeline.rollouts), len(pipeline.ready)) == (0, 0, 0, 0)


def play(house: House) -> None:
    """Answer whatever runs until nothing does."""
    answers = {"rollout": house.rolled, "training": house.trained, "evaluating": lambda job: house.evaluated(job, 1)}
    while running := [job for job in house.scheduler.jobs.values() if job.phase in answers]:
        answers[running[0].phase](running[0].job)


@pytest.mark.parametrize("policy", HOLDS)
@pytest.mark.parametrize("phase", PHASES)
def test_a_cancel_in_any_phase_gives_everything_back(phase, policy):
    house = house_with_a_in(phase, policy)
    house.cancel("a")
    play(house)
    assert "a" not in house.scheduler.jobs
    check_nothing_is_held(house)


@pytest.mark.parametrize("policy", HOLDS)
@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase not in ("evaluating", "held")])
def test_a_pause_in_any_phase_gives_everything_back_and_a_resume_goes_on(phase, policy):
    house = house_with_a_in(phase, policy)
    house.pause("a")
    play(house)
    assert house.phase("a") == "held"
    check_nothing_is_held(house)
    house.resume("a")
    play(house)
    assert house.ending().outcome == "succeeded"
    check_nothing_is_held(house)
