"""Evaluations run beside the steps and never block them; only the end of the job waits for them."""

from __future__ import annotations

from engine.core.evals import EvalPlan
from tests.engine.core.house import House


def plan(**changes: int | bool) -> EvalPlan:
    return EvalPlan(**{"steps": 10, "every": 0, "ends": False, "version": 0, "last_evaluated": -1, **changes})


def test_the_ends_are_version_0_and_the_last():
    assert [v for v in range(11) if plan(ends=True).is_due(v)] == [0, 10]


def test_every_nth_version_is_due_but_not_the_untrained_one():
    assert [v for v in range(11) if plan(every=4).is_due(v)] == [4, 8]


def test_a_newer_version_replaces_one_that_is_still_pending():
    busy = plan(every=1)
    busy.committed(1)
    busy.start()
    busy.committed(2)
    busy.committed(3)
    assert busy.pending == [3]


def test_the_first_and_the_last_are_never_replaced():
    busy = plan(every=1, ends=True)
    for version in range(1, 11):
        busy.committed(version)
    assert busy.pending == [0, 10]


def test_one_evaluation_at_a_time():
    busy = plan(every=1, ends=True)
    busy.committed(1)
    assert (busy.start(), busy.start()) == (0, None)


def test_an_answer_about_another_version_ends_nothing():
    busy = plan(ends=True)
    busy.start()
    assert not busy.ended(3)
    assert busy.outstanding == 0


def test_a_restart_evaluates_again_what_was_lost():
    assert plan(ends=True, version=5).pending == [0]
    assert plan(ends=True, version=5, last_evaluated=0).pending == []
    assert plan(every=5, version=5, last_evaluated=0).pending == [5]


def test_version_0_is_evaluated_beside_the_first_rollout():
    assert House().submit("a", eval_ends=True) == ["admit a", "eval a 0", "rollout a 0/1"]


def test_a_job_steps_on_while_its_evaluation_runs():
    house = House()
    house.submit("a", eval_every=1, steps=9)
    assert house.step("a") == ["eval a 1", "rollout a 1/1"]
    assert house.step("a") == ["rollout a 2/1"]
    assert house.evaluated("a", 1) == ["eval a 2"]


def test_the_end_waits_for_the_last_evaluation():
    house = House()
    house.submit("a", steps=1, eval_ends=True)
    house.evaluated("a", 0)
    assert house.step("a") == ["eval a 1"]
    assert house.evaluated("a", 1) == ["release a succeeded"]


def test_the_end_waits_for_an_earlier_evaluation_too():
    house = House()
    house.submit("a", steps=1, eval_ends=True)
    assert house.step("a") == []
    assert house.evaluated("a", 0) == ["eval a 1"]
    assert house.evaluated("a", 1) == ["release a succeeded"]


def test_a_job_in_its_last_evaluation_holds_no_place():
    house = House(max_active=1)
    house.submit("a", steps=1, eval_ends=True)
    house.submit("b")
    house.evaluated("a", 0)
    assert house.step("a") == ["eval a 1", "admit b", "rollout b 0/1"]


def test_a_held_job_starts_no_evaluation():
    house = House()
    house.submit("a", eval_every=1, steps=9)
    house.step("a")
    house.pause("a")
    assert house.step("a") == ["hold a"]
    assert house.evaluated("a", 1) == []
    assert house.resume("a") == ["admit a", "eval a 2", "rollout a 2/1"]


def test_a_late_evaluation_of_a_gone_job_changes_nothing():
    house = House()
    house.submit("a", eval_ends=True)
    house.cancel("a")
    assert house.evaluated("a", 0) == []
