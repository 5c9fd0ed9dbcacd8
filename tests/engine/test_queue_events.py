from __future__ import annotations

from typing import Any

import pytest

from engine import queue_events
from engine.core.messages import AdmissionChanged, Admit, RolloutDone, StartRollout, StartTrain, TrainDone
from engine.queue_events import left_idle, may_change_queue, newly_waiting
from tests.engine.core.house import House


def told(house: House, before: dict[str, str] | None = None, job: str | None = None) -> dict[str, dict[str, Any]]:
    return dict(newly_waiting(house.scheduler, lambda name: (before or {}).get(name, ""), job))


def crowded(**policy: Any) -> House:
    house = House(**{"max_active": 1, **policy})
    for job in "abc":
        house.submit(job)
    return house


def test_a_new_reason_is_told_with_place_and_forecast():
    assert told(crowded())["b"] == {
        "reason": "waits for a free adapter slot", "code": "slots", "position": 1, "next_seconds": None, "eta_seconds": None,
    }  # fmt: skip


def test_the_same_reason_is_not_told_again():
    assert told(crowded(), {"b": "slots", "c": "slots"}) == {}


def test_another_reason_is_told():
    assert list(told(crowded(), {"b": "kv", "c": "slots"})) == ["b"]


def test_short_waits_inside_a_step_are_not_told():
    house = crowded(max_active=8, max_rollouts=1)
    house.rolled("a")
    assert told(house) == {}


def test_a_job_that_has_not_begun_is_told_whatever_it_waits_for():
    per_step = {"admission_order": "fair", "kv_hold": "rollout", "slot_hold": "step"}
    assert told(crowded(max_active=8, max_rollouts=1, **per_step))["b"]["code"] == "rollouts"


def test_one_job_alone_can_be_looked_at():
    assert list(told(crowded(), job="c")) == ["c"]


@pytest.mark.parametrize("policy", [{}, {"admission_order": "fair", "kv_hold": "rollout", "slot_hold": "step"}])
def test_a_single_look_sees_what_the_look_at_all_sees(policy):
    house = crowded(**policy)
    house.submit("d", tenant="tenant of b", priority=1)
    house.rollout_failed("a")  # no commit yet, so neither has a forecast
    views = house.scheduler.view()
    assert {job: house.scheduler.view_of(job) for job in views} == views


def test_a_crowd_is_told_without_a_forecast(monkeypatch):
    house = crowded()
    house.at += 5
    house.step("a")
    assert told(house)["b"]["next_seconds"] is not None
    monkeypatch.setattr(queue_events, "MOST_FORECASTS", 2)
    assert told(house)["b"] == {**told(house)["b"], "position": 1, "next_seconds": None}


def test_only_what_moves_the_queue_makes_us_look():
    assert may_change_queue(AdmissionChanged(at=0, mode="open"), [])
    assert may_change_queue(RolloutDone(at=0, job="a", version=0, attempt=1), [Admit(job="b")])
    assert not may_change_queue(RolloutDone(at=0, job="a", version=0, attempt=1), [StartTrain(job="a", version=0, attempt=1)])


def test_a_job_that_finds_nothing_to_do_after_its_step_is_looked_at():
    done = TrainDone(at=0, job="a", version=0, attempt=1)
    assert left_idle(done, []) == "a"
    assert left_idle(done, [StartRollout(job="a", version=1, attempt=1)]) is None
