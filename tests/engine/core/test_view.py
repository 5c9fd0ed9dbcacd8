"""What people are told about a job: where it stands, what it waits for, how many are before it."""

from __future__ import annotations

import pytest

from engine.core import messages as m
from engine.core.policy import Policy
from tests.engine.core.house import House


def told(house: House, job: str) -> tuple[str, int | None, str]:
    view = house.scheduler.view()[job]
    return view.phase, view.position, view.code


def test_a_rollout_waits_for_nothing():
    house = House()
    house.submit("a")
    assert told(house, "a") == ("rollout", None, "")


def test_the_queue_counts_from_1():
    house = House(max_active=1)
    for job in "abc":
        house.submit(job)
    assert [told(house, job) for job in "bc"] == [("waiting", 1, "slots"), ("waiting", 2, "slots")]
    assert house.scheduler.view()["c"].reason == "waits for a free adapter slot; 1 before it"


def test_a_job_behind_one_that_waits_for_kv_waits_for_kv():
    house = House(kv_budget_bytes=15)
    for job in "abc":
        house.submit(job)
    assert [told(house, job) for job in "bc"] == [("waiting", 1, "kv"), ("waiting", 2, "kv")]


def test_a_capped_tenants_job_waits_for_its_own_kind():
    house = House()
    house.submit("a", tenant="t", running_cap=1)
    house.submit("b", tenant="t", running_cap=1)
    assert told(house, "b") == ("waiting", 1, "tenant_cap")


@pytest.mark.parametrize("mode", ["paused", "drain"])
def test_a_closed_door_is_named(mode):
    house = House()
    house.tell(m.AdmissionChanged, mode=mode)
    house.submit("a")
    assert told(house, "a") == ("waiting", 1, "admission")


def test_an_admitted_job_of_a_drained_engine_waits_for_the_operator():
    house = House()
    house.submit("a")
    house.tell(m.AdmissionChanged, mode="drain")
    house.step("a")
    assert told(house, "a") == ("waiting", 1, "admission")


def test_a_ready_batch_names_the_trainer():
    house = House()
    for job in "abc":
        house.submit(job)
        house.rolled(job)
    assert [told(house, job) for job in "abc"] == [("training", None, ""), ("ready", 1, "trainer"), ("ready", 2, "trainer")]


def test_a_barrier_is_named_on_both_sides():
    house = House(barrier=True)
    house.submit("a")
    house.submit("b")
    house.rolled("a")
    assert told(house, "a") == ("ready", 1, "barrier")
    house.rolled("b")
    house.trained("a")
    assert told(house, "a") == ("waiting", 1, "barrier")


def test_another_jobs_rollout_is_named():
    house = House(max_rollouts=1)
    house.submit("a")
    house.submit("b")
    assert told(house, "b") == ("waiting", 1, "rollouts")


def test_shared_devices_are_named():
    house = House(Policy(max_active=8, collocated=True))
    for job in "ab":
        house.submit(job)
    house.rolled("a")
    assert told(house, "a") == ("ready", 1, "rollouts")
    house.rolled("b")
    house.rollout_failed("b")
    house.submit("c")
    assert told(house, "c") == ("waiting", 1, "trainer")


def test_kv_that_a_rollout_waits_for_is_named():
    house = House(kv_budget_bytes=15, kv_hold="rollout")
    house.submit("a")
    house.submit("b")
    assert told(house, "b") == ("waiting", 1, "kv")


def test_a_held_job_is_paused():
    house = House()
    house.submit("a", paused=True)
    assert told(house, "a") == ("held", None, "paused")


def test_a_job_that_will_pause_or_stop_says_so():
    house = House()
    house.submit("a")
    house.pause("a")
    assert told(house, "a") == ("rollout", None, "paused")
    house.rolled("a")
    house.cancel("a")
    assert told(house, "a") == ("training", None, "stopping")


def test_the_last_evaluation_is_a_phase():
    house = House()
    house.submit("a", steps=1, eval_ends=True)
    house.step("a")
    assert told(house, "a") == ("evaluating", None, "")


def test_progress_and_place_are_shown():
    house = House()
    house.submit("a", tenant="t")
    house.step("a")
    view = house.scheduler.view()["a"]
    assert (view.tenant, view.version, view.steps, view.attempt, view.admitted) == ("t", 1, 3, 1, True)


def test_a_released_job_is_not_shown():
    house = House()
    house.submit("a")
    house.cancel("a")
    assert house.scheduler.view() == {}
