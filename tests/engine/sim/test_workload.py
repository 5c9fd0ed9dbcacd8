"""The workloads."""

from __future__ import annotations

import pytest

from engine.sim.workload import SHAPES, SimJob, workload


def job(**changes: float) -> SimJob:
    fields = {"decode_seconds": 10.0, "env_seconds": 2.0, "train_seconds": 1.0, **changes}
    return SimJob(job="a", tenant="t", steps=3, kv_bytes=1, **fields)


def test_without_spread_every_step_takes_the_median():
    times = job().times(version=7)
    assert (times.decode_seconds, times.env_seconds, times.train_seconds) == (10.0, 2.0, 1.0)


def test_with_spread_a_step_is_a_pure_function_of_seed_version_and_attempt():
    drawn = job(spread=0.5)
    assert drawn.times(1) == drawn.times(1)
    assert len({drawn.times(1), drawn.times(2), drawn.times(1, attempt=2), job(spread=0.5, seed=9).times(1)}) == 4


def test_half_of_the_steps_are_shorter_than_the_median():
    drawn = [job(spread=0.5).times(v).decode_seconds for v in range(1000)]
    assert 400 < sum(seconds < 10.0 for seconds in drawn) < 600


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_workload_has_as_many_jobs_as_asked_for_each_of_its_own_name(name):
    jobs = workload(name, jobs=7, steps=3)
    assert len({j.job for j in jobs}) == 7
    assert {j.steps for j in jobs} == {3}


def test_a_submission_carries_what_the_scheduler_needs():
    fact = job(eval_seconds=1.0, submitted_at=5.0).submission()
    assert (fact.at, fact.job, fact.steps, fact.eval_ends) == (5.0, "a", 3, True)


def test_an_unknown_workload_is_an_error():
    with pytest.raises(KeyError):
        workload("poetry", jobs=1, steps=1)
