from __future__ import annotations

import pytest

from engine.bench.figures import figures, steady
from engine.follow import JobView


def job(*commits: float, rollout_seconds: float = 0.5) -> JobView:
    made = JobView(job="a", tenant="t", task="add", steps=len(commits))
    for version, commit in enumerate(commits, 1):
        spans = [
            {"phase": "rollout", "start": commit - 1 - rollout_seconds, "end": commit - 1},
            {"phase": "train", "start": commit - 0.5, "end": commit},
        ]
        data = {"version": version, "rollout": {"reward_mean": 0.0}, "spans": spans, "seconds": {"train": 0.5}, "mismatch_kl": 0.0}
        made.take({"kind": "step", "data": data})
    made.take({"kind": "ended", "data": {"state": "succeeded", "ttfs_seconds": commits[0]}})
    return made


def found(**jobs: JobView) -> dict:
    return figures(jobs, submitted_at=0.0, sampler_before={}, sampler_after={})


def test_cold_counts_from_the_submission_to_the_last_commit():
    assert found(a=job(2.0, 4.0), b=job(3.0, 10.0))["cold_steps_per_hour"] == pytest.approx(4 / 10 * 3600)


def test_steady_counts_while_every_job_is_past_its_first_step_and_none_has_ended():
    assert steady([job(1.0, 2.0, 5.0, 8.0), job(4.0, 6.0)]) == pytest.approx(2 / 2 * 3600)


def test_jobs_that_were_never_at_work_together_have_no_steady_pace():
    assert steady([job(1.0, 2.0), job(3.0, 4.0)]) is None


def test_the_first_step_is_waited_for_on_average():
    assert found(a=job(2.0), b=job(4.0))["ttfs_mean_s"] == 3.0


def test_a_phase_of_two_jobs_at_once_keeps_the_device_busy_once():
    assert found(a=job(2.0, 4.0), b=job(2.0, 4.0))["rollout_busy_share"] == pytest.approx(1.0 / 4.0)


def test_a_run_without_a_commit_has_no_figures():
    empty = JobView(job="a", tenant="t", task="add", steps=1)

    assert figures({"a": empty}, submitted_at=0.0, sampler_before={}, sampler_after={}) == {"jobs": 1, "steps": 0}
