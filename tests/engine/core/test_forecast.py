"""When a job's next phase begins and when it ends, by the pace so far."""

from __future__ import annotations

import pytest

from engine.core import messages as m
from engine.core.policy import Policy
from tests.engine.core.house import House
from tests.engine.core.town import Town, Work

PER_STEP = {"admission_order": "fair", "kv_hold": "rollout", "slot_hold": "step"}


def take_step(house: House, job: str, *, rollout: float = 10.0, train: float = 2.0) -> list[str]:
    house.at += rollout
    house.rolled(job)
    house.at += train
    return house.trained(job)


def forecast(house: House, job: str, after: float = 0.0) -> tuple[float | None, float | None]:
    view = house.scheduler.view(house.at + after)[job]
    return view.next_seconds, view.eta_seconds


def test_before_the_first_commit_nothing_is_known():
    house = House(max_active=1)
    house.submit("a")
    house.submit("b")
    house.rolled("a")
    assert forecast(house, "a") == forecast(house, "b") == (None, None)


def test_a_rollout_lasts_as_long_as_the_job_s_last_ones():
    house = House()
    house.submit("a", steps=3)
    take_step(house, "a")
    assert forecast(house, "a") == (10.0, 24.0)
    assert forecast(house, "a", after=4.0) == (6.0, 20.0)


def test_what_takes_longer_than_ever_is_due_now():
    house = House()
    house.submit("a", steps=2)
    take_step(house, "a")
    assert forecast(house, "a", after=100.0)[0] == 0.0


def test_a_training_ends_the_step():
    house = House()
    house.submit("a", steps=2)
    take_step(house, "a")
    house.at += 10.0
    house.rolled("a")
    assert forecast(house, "a", after=0.5) == (1.5, 1.5)


def test_a_job_without_a_past_is_expected_to_be_like_the_others():
    house = House()
    house.submit("a")
    take_step(house, "a")
    house.submit("b", steps=1)
    assert forecast(house, "b") == (10.0, 12.0)


def test_a_ready_batch_waits_for_those_before_it():
    house = House()
    for job in "abc":
        house.submit(job, steps=2)
    for job in "abc":
        house.rolled(job)
    house.at += 2.0
    house.trained("a")
    assert (forecast(house, "b")[0], forecast(house, "c")[0]) == (2.0, 2.0)
    assert forecast(house, "c", after=0.5)[0] == 1.5


def test_who_is_queued_waits_for_the_first_place_that_comes_free():
    house = House(max_active=2)
    house.submit("long", steps=10)
    house.submit("short", steps=3)
    take_step(house, "short")
    house.submit("next", steps=1)
    house.submit("last", steps=1)
    assert forecast(house, "next") == (24.0, 36.0)
    assert forecast(house, "last") == (36.0, 48.0)


def test_where_slots_are_held_per_step_only_steps_are_waited_for():
    house = House(max_active=1, **PER_STEP)
    house.submit("long", steps=100)
    take_step(house, "long")
    house.submit("small", steps=2)
    assert forecast(house, "small") == (12.0, 36.0)


def test_who_waits_for_memory_waits_for_as_many_as_must_end():
    house = House(max_active=8, kv_budget_bytes=20, kv_hold="rollout")
    for job in "ab":
        house.submit(job, kv_bytes=10)
    house.rolled("a")
    house.at += 10.0
    house.trained("a")
    house.rollout_failed("b")
    house.submit("huge", kv_bytes=20)
    assert forecast(house, "huge")[0] == pytest.approx(house.scheduler.pace.rollout_seconds)


def test_a_tenant_at_its_cap_a_closed_door_and_a_pause_have_no_forecast():
    house = House(max_active=1)
    house.submit("a", tenant="t", running_cap=1)
    take_step(house, "a")
    house.submit("b", tenant="t", running_cap=1)
    house.submit("c", paused=True)
    assert forecast(house, "b") == forecast(house, "c") == (None, None)
    house.tell(m.AdmissionChanged, mode="paused")
    house.submit("d")
    assert forecast(house, "d") == (None, None)


def test_a_job_that_will_pause_has_no_end_in_sight():
    house = House()
    house.submit("a")
    take_step(house, "a")
    house.pause("a")
    assert forecast(house, "a") == (10.0, None)


def test_a_pause_is_no_pace():
    house = House()
    house.submit("a", steps=4)
    house.pause("a")
    take_step(house, "a")
    house.at += 1000.0
    house.resume("a")
    take_step(house, "a")
    assert house.scheduler.jobs["a"].step_seconds == 12.0


def test_the_pace_follows_what_changes():
    house = House()
    house.submit("a", steps=30)
    for _ in range(20):
        take_step(house, "a", rollout=20.0)
    assert forecast(house, "a")[0] == pytest.approx(20.0, abs=0.1)


@pytest.mark.parametrize("hold", [PER_STEP, {}])
@pytest.mark.parametrize("jobs", [4, 12])
def test_forecasts_come_true_where_nothing_changes(hold, jobs):
    """Equal jobs in virtual time: at mid-run, every job's forecast end is near the real one."""
    town = Town(policy=Policy(max_active=4, **hold))
    for number in range(jobs):
        town.submit(f"j{number}", Work(tenant=f"t{number}", rollout_seconds=lambda v: 10.0, train_seconds=0.5), steps=20)
    town.run(120.0)
    promised = {job: town.at + view.eta_seconds for job, view in town.scheduler.view().items()}
    town.run(10_000.0)
    ends = {job: commits[-1] for job, commits in town.commits.items()}
    assert promised.keys() == ends.keys()
    assert all(abs(promised[job] - ends[job]) < 0.1 * ends[job] for job in ends)


def test_a_view_of_thousands_is_no_work_of_squares():
    """Python calls per job, so that no clock is needed."""
    assert _calls_per_job(4000) < 1.5 * _calls_per_job(400)


def _calls_per_job(jobs: int) -> float:
    import sys

    house = House(max_active=32, **PER_STEP)
    for number in range(jobs):
        house.submit(f"j{number}", tenant=f"t{number % 50}")
    take_step(house, next(c.job for c in house.commands if isinstance(c, m.StartRollout)))
    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    house.scheduler.view()
    sys.setprofile(None)
    return count / jobs
