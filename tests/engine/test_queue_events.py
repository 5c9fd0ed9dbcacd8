from __future__ import annotations

from engine.core.messages import AdmissionChanged, Admit, RolloutDone, StartRollout, StartTrain, TrainDone
from engine.core.view import JobView
from engine.queue_events import changed_reasons, may_change_queue

WAITS = {"position": 2, "next_seconds": 4.3, "eta_seconds": None}


def view(job: str, code: str, phase: str = "waiting", *, admitted: bool = False) -> JobView:
    place = {"position": 2, "next_seconds": 4.321, "code": code, "reason": f"because of {code}"}
    return JobView(job=job, tenant="t", phase=phase, admitted=admitted, version=0, steps=1, attempt=0, **place)


def test_a_new_reason_is_told():
    assert changed_reasons([view("a", "kv")], {}) == [("a", WAITS | {"reason": "because of kv", "code": "kv"})]


def test_the_same_reason_is_not_told_again():
    assert changed_reasons([view("a", "kv")], {"a": "kv"}) == []


def test_another_reason_is_told():
    assert [job for job, _ in changed_reasons([view("a", "slots")], {"a": "kv"})] == ["a"]


def test_short_waits_inside_a_step_are_not_told():
    assert changed_reasons([view("a", "trainer", "ready"), view("b", "rollouts", admitted=True), view("c", "", "rollout")], {}) == []


def test_a_job_that_has_not_begun_is_told_whatever_it_waits_for():
    assert [job for job, _ in changed_reasons([view("a", "rollouts")], {})] == ["a"]


def test_only_what_moves_the_queue_makes_us_look():
    assert may_change_queue(AdmissionChanged(at=0, mode="open"), [])
    assert may_change_queue(RolloutDone(at=0, job="a", version=0, attempt=1), [Admit(job="b")])
    assert not may_change_queue(RolloutDone(at=0, job="a", version=0, attempt=1), [StartTrain(job="a", version=0, attempt=1)])


def test_a_job_that_finds_nothing_to_do_after_its_step_makes_us_look():
    done = TrainDone(at=0, job="a", version=0, attempt=1)
    assert may_change_queue(done, [])
    assert not may_change_queue(done, [StartRollout(job="a", version=1, attempt=1)])
