from __future__ import annotations

import pytest

from engine.bench.bound import Bound, path_seconds, train_seconds


def test_the_largest_of_the_three_binds():
    bound = Bound(rollout_s=3.0, train_s=5.0, path_s=4.0)

    assert (bound.seconds, bound.binding) == (5.0, "trainer")


def test_a_few_timed_trainings_stand_for_all():
    assert train_seconds([0.1, 0.3], steps=10) == pytest.approx(2.0)


def test_a_jobs_own_path_is_its_tools_and_what_sampling_and_training_add_to_each_step():
    # Steps 1 and 2 took 0.4 s and 0.6 s beyond their slowest tools.
    assert path_seconds([1.0, 2.0, 3.0], {1: 2.4, 2: 3.6}, train=0.1) == pytest.approx(6.0 + 3 * (0.5 + 0.1))


def test_a_job_without_tools_samples_and_trains_one_step_after_another():
    assert path_seconds([0.0, 0.0], {1: 0.2}, train=0.1) == pytest.approx(0.6)
