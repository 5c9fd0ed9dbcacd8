"""A sampler or a trainer that dies takes what it ran with it; everything else goes on."""

from __future__ import annotations

from engine.core import messages as m
from engine.core.policy import Policy
from tests.engine.core.house import House


def lose(house: House, *jobs: str, attempt: int | None = None) -> list[str]:
    records = [house.scheduler.jobs[job] for job in jobs]
    lost = tuple(m.Lost(job=r.job, version=r.version, attempt=r.attempt if attempt is None else attempt) for r in records)
    return house.tell(m.WorkerLost, lost=lost, reason="its process died")


def test_all_rollouts_of_a_lost_sampler_are_redone():
    house = House()
    for job in "abc":
        house.submit(job)
    assert lose(house, "a", "b") == ["rollout a 0/2", "rollout b 0/2"]


def test_a_lost_training_is_redone_from_its_batch():
    house = House()
    house.submit("a")
    house.rolled("a")
    assert lose(house, "a") == ["train a 0/1"]


def test_what_a_lost_sampler_had_finished_is_not_lost():
    house = House()
    house.submit("a")
    house.submit("b")
    house.rolled("a")
    house.rolled("b")
    assert lose(house, "b", attempt=1) == []
    assert house.trained("a") == ["train b 0/1", "rollout a 1/1"]


def test_the_line_decides_who_is_redone_first():
    """All is lost before anything starts anew: the tenant that was served least goes first, not the one that is named first."""
    house = House(Policy(max_active=8, admission_order="fair"))
    house.submit("a", kv_bytes=100)
    house.submit("b", kv_bytes=10)
    assert lose(house, "a", "b") == ["rollout b 0/2", "rollout a 0/2"]


def test_the_late_failure_of_a_lost_attempt_changes_nothing():
    house = House()
    house.submit("a")
    lose(house, "a")
    assert house.rollout_failed("a", attempt=1) == []


def test_a_job_that_kills_its_sampler_three_times_is_given_up():
    house = House()
    house.submit("a")
    lose(house, "a")
    lose(house, "a")
    assert lose(house, "a") == ["release a failed"]
    assert house.ending().attribution == "platform"


def test_a_lost_worker_does_not_undo_a_pause_or_a_stop():
    house = House()
    house.submit("a")
    house.submit("b")
    house.pause("a")
    house.rolled("b")
    house.cancel("b")
    assert lose(house, "a", "b") == ["hold a", "release b cancelled"]
