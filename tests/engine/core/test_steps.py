"""One job's steps: strictly on-policy, one outstanding batch, attempts, failures and endings."""

from __future__ import annotations

import pytest

from engine.core import messages as m
from tests.engine.core.house import House


def test_a_submitted_job_is_admitted_and_rolls_out_from_version_0():
    assert House().submit("a") == ["admit a", "rollout a 0/1"]


def test_a_finished_rollout_is_trained_on():
    house = House()
    house.submit("a")
    assert house.rolled("a") == ["train a 0/1"]


def test_the_next_rollout_starts_from_the_committed_version_with_attempt_1():
    house = House()
    house.submit("a")
    house.rollout_failed("a")
    assert house.step("a") == ["rollout a 1/1"]


def test_nothing_more_is_asked_of_a_job_whose_batch_is_outstanding():
    house = House(train_slots=4)
    house.submit("a")
    house.rolled("a")
    assert house.submit("b") == ["admit b", "rollout b 0/1"]


def test_the_last_commit_ends_the_job_as_succeeded():
    house = House()
    house.submit("a", steps=2)
    house.step("a")
    assert house.step("a") == ["release a succeeded"]


def test_a_released_job_is_forgotten():
    house = House()
    house.submit("a", steps=1)
    house.step("a")
    assert house.rolled("a") == house.trained("a") == house.pause("a") == house.cancel("a") == []


def test_a_job_submitted_twice_runs_once():
    house = House()
    house.submit("a")
    assert house.submit("a") == []


@pytest.mark.parametrize("key", [{"attempt": 1}, {"attempt": 3}, {"version": 1}])
def test_an_answer_of_another_attempt_or_version_changes_nothing(key):
    house = House()
    house.submit("a")
    house.rollout_failed("a")
    assert house.rolled("a", **key) == []
    assert house.phase("a") == "rollout"


def test_a_rollout_reported_twice_is_trained_on_once():
    house = House(train_slots=2)
    house.submit("a")
    house.rolled("a")
    assert house.rolled("a") == []


def test_a_commit_reported_twice_counts_once():
    house = House()
    house.submit("a")
    house.step("a")
    assert house.trained("a", version=0, attempt=1) == []
    assert house.scheduler.jobs["a"].version == 1


def test_a_rollout_that_the_platform_lost_is_redone_under_the_next_attempt():
    house = House()
    house.submit("a")
    assert house.rollout_failed("a") == ["rollout a 0/2"]


def test_an_adapter_that_would_not_load_is_a_lost_rollout():
    house = House()
    house.submit("a")
    assert house.load_failed("a") == ["rollout a 0/2"]


def test_a_job_that_the_platform_failed_too_often_is_quarantined():
    house = House(max_attempts=3)
    house.submit("a")
    house.rollout_failed("a")
    house.load_failed("a")
    assert house.rollout_failed("a") == ["release a failed"]
    assert house.ending().attribution == "platform"
    assert house.ending().reason == "given up after 3 attempts at step 1: it broke"


def test_a_commit_forgives_earlier_failures():
    house = House(max_attempts=2)
    house.submit("a")
    house.rollout_failed("a")
    house.step("a")
    assert house.rollout_failed("a") == ["rollout a 1/2"]


@pytest.mark.parametrize("by", ["user", "reward"])
def test_a_failure_that_is_not_the_platforms_ends_the_job_at_once(by):
    house = House()
    house.submit("a")
    assert house.rollout_failed("a", by=by) == ["release a failed"]
    assert (house.ending().reason, house.ending().attribution) == ("it broke", by)


def test_a_training_that_the_platform_lost_is_redone_from_the_same_batch():
    house = House()
    house.submit("a")
    house.rolled("a")
    assert house.train_failed("a") == ["train a 0/1"]


def test_a_training_lost_too_often_quarantines_its_job():
    house = House(max_attempts=2)
    house.submit("a")
    house.rolled("a")
    house.train_failed("a")
    assert house.train_failed("a") == ["release a failed"]


def test_a_training_that_fails_by_the_users_fault_ends_the_job():
    house = House()
    house.submit("a")
    house.rolled("a")
    assert house.train_failed("a", by="user") == ["release a failed"]


def test_one_jobs_failure_leaves_the_others_alone():
    house = House()
    house.submit("a")
    house.submit("b")
    house.rollout_failed("a", by="user")
    assert house.rolled("b") == ["train b 0/1"]


def test_batches_are_trained_in_the_order_in_which_they_became_ready():
    house = House()
    for job in "abc":
        house.submit(job)
    house.rolled("b")
    house.rolled("c")
    house.rolled("a")
    assert house.trained("b") == ["train c 0/1", "rollout b 1/1"]
    assert house.trained("c") == ["train a 0/1", "rollout c 1/1"]


def test_a_lost_training_goes_to_the_back_of_the_line():
    house = House()
    house.submit("a")
    house.submit("b")
    house.rolled("a")
    house.rolled("b")
    assert house.train_failed("a") == ["train b 0/1"]


def test_as_many_trainings_run_at_once_as_there_are_slots():
    house = House(train_slots=2)
    for job in "abc":
        house.submit(job)
    assert house.rolled("a") == ["train a 0/1"]
    assert house.rolled("b") == ["train b 0/1"]
    assert house.rolled("c") == []


def test_the_trainer_takes_the_most_important_batch_first_if_the_policy_says_so():
    house = House(train_order="priority")
    for job, priority in (("a", 0), ("b", 0), ("c", 5)):
        house.submit(job, priority=priority)
    house.rolled("a")
    house.rolled("b")
    house.rolled("c")
    assert house.trained("a")[0] == "train c 0/1"


def test_a_batch_that_becomes_more_important_overtakes():
    house = House(train_order="priority")
    for job in "abc":
        house.submit(job)
        house.rolled(job)
    house.tell(m.Reprioritised, job="c", priority=1)
    assert house.trained("a")[0] == "train c 0/1"


def test_a_sample_of_the_kv_cache_or_a_tick_asks_for_nothing():
    house = House()
    house.submit("a")
    assert house.tell(m.KvSample, used=0.5, waiting=3, preempted=1) == house.tell(m.Tick) == []


def test_a_fact_of_an_unknown_kind_is_an_error():
    with pytest.raises(KeyError):
        House().scheduler.handle(m.Fact(at=0.0))


# The commit, after the trainer has let go of the step


def two_ready(**changes) -> House:
    """``a`` is at the trainer, ``b`` waits for it."""
    house = House(**changes)
    house.submit("a")
    house.submit("b")
    house.rolled("a")
    house.rolled("b")
    return house


def test_the_next_batch_is_trained_on_while_the_last_result_is_committed():
    house = two_ready()
    assert house.left_trainer("a") == ["train b 0/1"]
    assert house.trained("a") == ["rollout a 1/1"]


def test_before_its_commit_a_version_is_not_sampled_from():
    house = two_ready()
    house.left_trainer("a")
    house.left_trainer("b")
    assert (house.phase("a"), house.scheduler.jobs["a"].version) == ("training", 0)
    assert house.left_trainer("a") == house.left_trainer("b") == []
    assert house.trained("b") == ["rollout b 1/1"]


@pytest.mark.parametrize("key", [{"attempt": 2}, {"version": 1}])
def test_a_trainer_that_lets_go_of_another_attempt_changes_nothing(key):
    assert two_ready().left_trainer("a", **key) == []


def test_a_commit_that_fails_is_trained_again_behind_those_who_wait():
    house = two_ready()
    house.left_trainer("a")
    assert house.train_failed("a") == []
    assert house.trained("b") == ["train a 0/1", "rollout b 1/1"]


def test_a_job_that_is_cancelled_during_its_commit_is_released_behind_it():
    house = two_ready()
    house.left_trainer("a")
    assert house.cancel("a") == []
    assert house.trained("a") == ["release a cancelled"]


def test_under_a_barrier_a_commit_still_counts_as_delivered():
    house = House(barrier=True)
    for job in "abc":
        house.submit(job)
    house.rolled("a")
    house.rolled("b")
    assert house.rolled("c") == ["train a 0/1"]
    assert house.left_trainer("a") == ["train b 0/1"]
    assert house.left_trainer("b") == ["train c 0/1"]
    house.trained("a")
    house.trained("b")
    assert house.trained("c") == ["rollout a 1/1", "rollout b 1/1", "rollout c 1/1"]


def test_the_pace_of_the_trainer_leaves_the_commit_out():
    house = two_ready()
    house.at = 3.0
    house.left_trainer("a")
    house.at = 10.0
    house.trained("a")
    assert house.scheduler.jobs["a"].train_seconds == 3.0


# The batch that is next in line, handed to the trainer beforehand


def test_the_next_in_line_is_prepared_once_while_the_trainer_is_at_work():
    house = two_ready()
    assert house.prepared() == ["b 0/1"]
    house.submit("c")
    house.rolled("c")
    assert house.prepared() == ["b 0/1"]
    house.left_trainer("a")
    assert house.prepared() == ["b 0/1", "c 0/1"]


def test_who_overtakes_is_prepared_instead():
    house = two_ready(train_order="priority")
    house.submit("c", priority=1)
    house.rolled("c")
    assert house.prepared() == ["b 0/1", "c 0/1"]


def test_nothing_is_prepared_while_a_trainer_is_free():
    house = two_ready(train_slots=2)
    assert house.prepared() == []
