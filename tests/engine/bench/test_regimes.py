"""From events to what a regime is judged by."""

from __future__ import annotations

import pytest

from engine.bench.bound import Bound
from engine.bench.regimes import over_rounds, regime_figures
from tests.engine.bench.runs import job, run, step

BOUND = Bound(rollout_s=3.0, train_s=1.0, path_s=8.0)


def two_jobs():
    """Job a commits at 4 and 8, job b at 5 and 10."""
    a = job("a", step(1, 0, 1, 2, 0, 1, 0), step(2, 4, 0, 3, 0, 1, 0))
    b = job("b", step(1, 0, 1, 2, 1, 1, 0), step(2, 5, 0, 4, 0, 1, 0))
    return run(a, b, sampling=[(1.5, 3), (4, 9)])


def test_throughput_counts_until_the_first_job_ends():
    assert regime_figures(two_jobs())["steps_per_hour"] == 3 / 8 * 3600


def test_where_jobs_run_one_at_a_time_throughput_counts_to_the_end():
    one_by_one = run(*two_jobs().jobs, one_at_a_time=True)

    assert regime_figures(one_by_one)["steps_per_hour"] == 4 / 10 * 3600


def test_wall_and_first_steps_count_from_the_submission():
    figures = regime_figures(two_jobs())

    assert (figures["wall_s"], figures["ttfs_s"]) == (10.0, [4.0, 5.0])


def test_a_device_is_idle_though_ready_while_a_job_stands_before_it():
    # Both jobs wait for a rollout from 0 to 1; b's batch waits from 3 to 4, but the trainer has a's then.
    figures = regime_figures(two_jobs())

    assert (figures["idle_ready_rollout"], figures["idle_ready_train"], figures["idle_ready"]) == (0.1, 0.0, 0.1)


def test_a_batch_that_waits_for_a_free_trainer_is_idle_time():
    figures = regime_figures(run(job("a", step(1, 0, 0, 2, 6, 2, 0)), sampling=[(0, 2)]))

    assert figures["idle_ready_train"] == 0.6


def test_the_sampler_is_busy_only_while_it_has_requests():
    assert regime_figures(two_jobs())["rollout_busy"] == pytest.approx((1.5 + 4) / 8)


def test_without_a_look_at_the_sampler_its_rollouts_count_as_busy():
    blind = run(*two_jobs().jobs, sampling=None)

    assert regime_figures(blind)["rollout_busy"] == pytest.approx((2 + 4) / 8)


def test_the_bound_is_held_against_the_wall():
    figures = regime_figures(two_jobs(), BOUND)

    assert (figures["bound_s"], figures["bound_ratio"]) == (8.0, 0.8)


def test_a_run_that_was_cut_is_drawn_out_at_its_own_pace():
    figures = regime_figures(run(job("a", step(1, 0, 0, 3, 0, 1, 0), wanted=3), job("b", wanted=1), cut_at=5.0, one_at_a_time=True))

    assert (figures["measured_share"], figures["wall_s"], figures["steps_per_hour"]) == (0.25, 16.0, 900.0)


def test_a_cut_run_of_different_jobs_is_drawn_out_by_what_their_steps_take():
    # One of two steps that take 1 s, one of two that take 3 s, the last of them at 4 s: half of the work, so 8 s in all.
    quick = job("a", step(1, 0, 0, 0.5, 0, 0.5, 0), wanted=2, kind="reasoning")
    slow = job("b", step(1, 1, 0, 2.0, 0, 1.0, 0), wanted=2, kind="agentic")

    figures = regime_figures(run(quick, slow, cut_at=5.0, one_at_a_time=True))

    assert (figures["measured_share"], figures["wall_s"], figures["steps_per_hour"]) == (0.5, 8.0, 4 / 8 * 3600)


def test_a_round_that_the_cut_broke_off_counts_as_not_begun():
    jobs = [job(name, step(1, 0, 0, 3, 0, 1, 0), wanted=2) for name in ("a", "b")]

    figures = regime_figures(run(*jobs, cut_at=7.9))

    assert (figures["wall_s"], figures["steps_per_hour"]) == (8.0, 1800.0)


def test_a_kind_of_job_that_never_came_to_a_step_counts_as_the_dearest():
    done = job("a", step(1, 0, 0, 3.0, 0, 1.0, 0), wanted=1)

    assert regime_figures(run(done, job("b", wanted=3, kind="slow-agentic"), cut_at=4.0))["wall_s"] == 16.0


def test_a_run_without_a_step_has_no_figures():
    assert regime_figures(run(job("a", wanted=2), cut_at=1.0)) == {"steps": 0, "measured_share": 0.0}


def test_several_rounds_give_the_median_and_the_spread():
    rounds = [{"wall_s": wall, "ttfs_s": [wall, 2 * wall], "bound_s": None} for wall in (3.0, 1.0, 2.0)]

    figures = over_rounds(rounds)

    assert (figures["wall_s"], figures["ttfs_s"], figures["bound_s"]) == (2.0, [2.0, 4.0], None)
    assert (figures["rounds"], figures["spread"]) == (3, {"wall_s": [1.0, 3.0]})
