"""What a run of a load amounts to. Pure functions of the jobs' events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.follow import JobView, shares
from engine.overlap import busy_seconds

HOUR_SECONDS = 3600.0


def figures(
    views: Mapping[str, JobView], *, submitted_at: float, sampler_before: Mapping[str, Any], sampler_after: Mapping[str, Any]
) -> dict[str, Any]:
    """``submitted_at``: UTC epoch seconds before the first submission. Throughputs count the steps of all jobs."""
    jobs = list(views.values())
    commits = [commit for view in jobs for commit in view.commits]
    if not commits:
        return {"jobs": len(jobs), "steps": 0}
    ended = max(commits)
    return {
        "jobs": len(jobs),
        "succeeded": sum(view.state == "succeeded" for view in jobs),
        "steps": len(commits),
        "steps_without_signal": sum(data.get("skipped") is not None for view in jobs for data in view.committed),
        "cold_steps_per_hour": _per_hour(len(commits), ended - submitted_at),
        "steady_steps_per_hour": steady(jobs),
        "ttfs_mean_s": _mean(view.ending["ttfs_seconds"] for view in jobs if view.committed and view.ending),
        "wall_s": round(ended - submitted_at, 3),
        "rollout_busy_share": _busy(jobs, "rollout", submitted_at, ended),
        "train_busy_share": _busy(jobs, "train", submitted_at, ended),
        "seconds_per_step": _seconds(jobs),
        **shares(views, sampler_before, sampler_after),
    }


def steady(jobs: Iterable[JobView]) -> float | None:
    """Steps per hour from the moment every job has made its first step until the first job ends, as all throughputs here are counted:
    loading, warm-up, the first steps and the tail in which fewer jobs run are left out. None when the jobs were never all at work.
    """
    commits = [view.commits for view in jobs if view.commits]
    begin, end = max(own[0] for own in commits), min(own[-1] for own in commits)
    return _per_hour(sum(begin < commit <= end for own in commits for commit in own), end - begin)


def _busy(jobs: list[JobView], phase: str, begin: float, end: float) -> float:
    intervals = [(span.start, span.end) for view in jobs for span in view.spans if span.phase == phase]
    return round(busy_seconds(intervals) / (end - begin), 3)


def _seconds(jobs: list[JobView]) -> dict[str, float | None]:
    committed = [data for view in jobs for data in view.committed]
    return {name: _mean(data["seconds"][name] for data in committed) for name in committed[0]["seconds"]}


def _per_hour(steps: int, seconds: float) -> float | None:
    return round(steps * HOUR_SECONDS / seconds, 1) if seconds > 0 else None


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return round(sum(known) / len(known), 4) if known else None
