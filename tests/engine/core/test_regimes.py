"""Every regime that the product is compared with is a policy of the one scheduler."""

from __future__ import annotations

import pytest

from engine.core import messages as m
from engine.core.policy import REGIMES, Policy, regime, shipped
from tests.engine.core.house import House


def house_of(name: str, jobs: str = "abc", **fields: int) -> House:
    house = House(regime(name, slots=8))
    for job in jobs:
        house.submit(job, **fields)
    return house


def test_an_unknown_regime_is_an_error():
    with pytest.raises(KeyError):
        regime("fast", slots=1)


@pytest.mark.parametrize("field", ["max_active", "train_slots", "max_attempts", "max_rollouts", "kv_budget_bytes", "ageing_seconds"])
def test_a_policy_refuses_what_could_never_run(field):
    with pytest.raises(ValueError, match=field):
        Policy(**{"max_active": 1, field: 0})


@pytest.mark.parametrize("name", sorted(REGIMES))
def test_every_regime_runs_every_job_to_its_end(name):
    house = house_of(name, steps=2)
    done = 0
    while done < len(house.commands):
        command, done = house.commands[done], done + 1
        if isinstance(command, m.StartRollout):
            house.rolled(command.job)
        if isinstance(command, m.StartTrain):
            house.trained(command.job)
    assert sorted(c.job for c in house.commands if isinstance(c, m.Release)) == ["a", "b", "c"]


def test_marlaas_lets_all_jobs_roll_out_while_one_trains():
    house = house_of("marlaas")
    house.rolled("a")
    assert [house.phase(job) for job in "abc"] == ["training", "rollout", "rollout"]


def test_marlaas_sends_a_trained_job_on_without_waiting_for_others():
    house = house_of("marlaas")
    assert house.step("a") == ["rollout a 1/1"]


@pytest.mark.parametrize("name", ["single-disaggregated", "single-collocated"])
def test_the_single_regimes_run_one_job_after_the_other(name):
    house = house_of(name, steps=1)
    assert [house.phase(job) for job in "abc"] == ["rollout", "waiting", "waiting"]
    assert house.step("a") == ["release a succeeded", "admit b", "rollout b 0/1"]


def test_under_a_barrier_nothing_trains_before_every_rollout_is_ready():
    house = house_of("multi-lora-sync", "ab")
    assert house.rolled("a") == []
    assert house.rolled("b") == ["train a 0/1"]


def test_under_a_barrier_the_next_round_begins_when_all_have_committed():
    house = house_of("multi-lora-sync", "ab")
    house.rolled("a")
    house.rolled("b")
    assert house.trained("a") == ["train b 0/1"]
    assert house.trained("b") == ["rollout a 1/1", "rollout b 1/1"]


def test_under_a_barrier_a_job_admitted_during_training_joins_the_next_round():
    house = house_of("multi-lora-sync", "a")
    house.rolled("a")
    assert house.submit("b") == ["admit b"]
    assert house.trained("a") == ["rollout b 0/1", "rollout a 1/1"]


def test_under_a_barrier_a_job_that_dies_frees_the_others():
    house = house_of("multi-lora-sync", "ab")
    house.rolled("a")
    assert house.cancel("b") == ["abort b", "release b cancelled", "train a 0/1"]


def test_under_a_barrier_a_job_that_pauses_frees_the_next_round():
    house = house_of("multi-lora-sync", "ab")
    house.pause("b")
    house.rolled("a")
    house.rolled("b")
    house.trained("a")
    assert house.trained("b") == ["hold b", "rollout a 1/1"]


def test_under_a_barrier_a_lost_rollout_is_redone_within_the_round():
    house = house_of("multi-lora-sync", "ab")
    house.rolled("a")
    assert house.rollout_failed("b") == ["rollout b 0/2"]
    assert house.rolled("b") == ["train a 0/1"]


def test_draining_under_a_barrier_trains_what_is_ready():
    house = house_of("multi-lora-sync", "ab")
    house.rolled("a")
    assert house.tell(m.AdmissionChanged, mode="drain") == ["train a 0/1"]


def test_without_multi_lora_one_job_rolls_out_at_a_time():
    house = house_of("no-multi-lora", "ab")
    assert [house.phase(job) for job in "ab"] == ["rollout", "waiting"]
    assert house.rolled("a") == ["train a 0/1", "rollout b 0/1"]


def test_without_multi_lora_the_jobs_take_turns():
    house = house_of("no-multi-lora", "ab")
    house.rolled("a")
    house.trained("a")
    assert house.rolled("b") == ["train b 0/1", "rollout a 1/1"]


def test_without_async_and_multi_lora_a_round_rolls_out_one_by_one_and_then_trains():
    house = house_of("no-async-no-multi-lora", "ab")
    assert house.rolled("a") == ["rollout b 0/1"]
    assert house.rolled("b") == ["train a 0/1"]


def test_collocated_rollouts_and_training_exclude_each_other():
    house = House(Policy(max_active=8, collocated=True))
    for job in "abc":
        house.submit(job)
    assert house.rolled("a") == []
    house.rolled("b")
    assert house.rolled("c") == ["train a 0/1"]


def test_collocated_batches_are_all_trained_before_the_next_rollout():
    house = House(Policy(max_active=8, collocated=True))
    house.submit("a")
    house.submit("b")
    house.rolled("a")
    house.rolled("b")
    assert house.trained("a") == ["train b 0/1"]
    assert house.trained("b") == ["rollout a 1/1", "rollout b 1/1"]


def test_a_collocated_round_of_one_rollout_at_a_time_does_not_lock_up():
    house = House(Policy(max_active=8, collocated=True, barrier=True, max_rollouts=1))
    house.submit("a")
    house.submit("b")
    assert house.rolled("a") == ["rollout b 0/1"]


def test_a_barrier_that_is_lifted_lets_the_waiting_jobs_go():
    house = house_of("multi-lora-sync", "ab")
    house.rolled("a")
    house.rolled("b")
    house.trained("a")
    assert house.tell(m.PolicyChanged, policy=Policy(max_active=8)) == ["rollout a 1/1"]


def test_a_barrier_that_is_raised_binds_the_jobs_under_way():
    house = house_of("marlaas", "ab")
    house.tell(m.PolicyChanged, policy=Policy(max_active=8, barrier=True))
    assert house.rolled("a") == []
    assert house.rolled("b") == ["train a 0/1"]


def test_a_change_within_the_barrier_keeps_the_lobby_waiting():
    house = house_of("multi-lora-sync", "ab")
    house.rolled("a")
    house.rolled("b")
    house.trained("a")
    house.tell(m.PolicyChanged, policy=Policy(max_active=9, barrier=True))
    assert house.trained("b") == ["rollout a 1/1", "rollout b 1/1"]


def test_an_engine_starts_with_what_bounds_the_tenants_wait_for_each_other():
    policy = shipped("marlaas", slots=8, kv_budget_bytes=100)
    assert (policy.admission_order, policy.kv_hold, policy.slot_hold) == ("fair", "rollout", "step")


@pytest.mark.parametrize("name", sorted(set(REGIMES) - {"marlaas"}))
def test_the_regimes_that_it_is_compared_with_are_as_the_paper_has_them(name):
    assert shipped(name, slots=8, kv_budget_bytes=100) == regime(name, slots=8, kv_budget_bytes=100)
