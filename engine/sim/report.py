"""What a run is judged by, defined as in the paper (arXiv 2605.08527) and in the engine itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from engine.sim.devices import BusyMeter


@dataclass(kw_only=True, slots=True)
class JobHistory:
    """Seconds of virtual time."""

    submitted_at: float
    commits: list[float] = field(default_factory=list)
    ended_at: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Means over jobs, in seconds.

    ``ttfs_seconds``: submission to first commit. ``tpts_seconds``: commit to next commit. ``completion_seconds``: submission to end.
    ``steps_per_hour`` and the busy shares are counted from the first submission until the first job ends; where jobs run one at a
    time, over the whole run.
    """

    jobs: int
    steps: int
    wall_seconds: float
    ttfs_seconds: float
    tpts_seconds: float
    completion_seconds: float
    steps_per_hour: float
    rollout_busy: float
    train_busy: float

    @classmethod
    def of(cls, *, histories: Mapping[str, JobHistory], sampler: BusyMeter, trainer: BusyMeter, one_at_a_time: bool) -> Report:
        """Raises ``ValueError`` without jobs. A job that never committed or ended counts in no mean."""
        if not histories:
            raise ValueError("a report needs at least one job")
        jobs = list(histories.values())
        start = min(job.submitted_at for job in jobs)
        ends = [job.ended_at for job in jobs if job.ended_at is not None]
        close = (max(ends) if one_at_a_time else min(ends)) if ends else start
        commits = [at for job in jobs for at in job.commits]
        window = close - start
        return cls(
            jobs=len(jobs),
            steps=len(commits),
            wall_seconds=max(ends, default=start) - start,
            ttfs_seconds=_mean(job.commits[0] - job.submitted_at for job in jobs if job.commits),
            tpts_seconds=_mean(after - before for job in jobs for before, after in pairwise(job.commits)),
            completion_seconds=_mean(job.ended_at - job.submitted_at for job in jobs if job.ended_at is not None),
            steps_per_hour=3600.0 * sum(at <= close for at in commits) / window if window > 0 else 0.0,
            rollout_busy=sampler.share(start, close),
            train_busy=trainer.share(start, close),
        )


def table(reports: Mapping[str, Report]) -> str:
    """One line a regime, for people."""
    head = f"{'regime':<24}{'wall s':>10}{'steps/h':>10}{'TTFS s':>10}{'TPTS s':>10}{'done s':>10}{'rollout':>9}{'train':>8}"
    return "\n".join([head, *(_row(name, report) for name, report in reports.items())])


def _row(name: str, r: Report) -> str:
    seconds = "".join(
        f"{value:>10.1f}" for value in (r.wall_seconds, r.steps_per_hour, r.ttfs_seconds, r.tpts_seconds, r.completion_seconds)
    )
    return f"{name:<24}{seconds}{r.rollout_busy:>9.0%}{r.train_busy:>8.0%}"


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values) if values else 0.0
