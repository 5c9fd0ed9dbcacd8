"""What a run is judged by, defined as in the paper (arXiv 2605.08527) and in the engine itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from engine.sim.devices import BusyMeter


@dataclass(kw_only=True, slots=True)
class StepTimes:
    """Moments of one step in virtual seconds. ``idle_at``: when it could have begun, ``rolled_out_at``: when its batch is ready."""

    idle_at: float
    started_at: float
    rolled_out_at: float = 0.0
    train_at: float = 0.0
    committed_at: float = 0.0


@dataclass(kw_only=True, slots=True)
class JobHistory:
    """Seconds of virtual time."""

    submitted_at: float
    steps: list[StepTimes] = field(default_factory=list)
    ended_at: float | None = None
    tokens: float = 0.0

    @property
    def commits(self) -> list[float]:
        return [step.committed_at for step in self.steps if step.committed_at]


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Means over jobs, in seconds.

    ``ttfs_seconds``: submission to first commit. ``tpts_seconds``: commit to next commit. ``completion_seconds``: submission to end.
    ``rollout_seconds``: a step's rollout with its tools and judge; ``wait_rollout_seconds``, ``wait_train_seconds``: a step waiting for its
    turn, at a barrier or in a line. ``steps_per_hour`` and the busy shares are counted from the first submission until the first job
    ends; where jobs run one at a time, over the whole run. The ``…_total`` are over the whole run: work done.
    """

    jobs: int
    steps: int
    wall_seconds: float
    ttfs_seconds: float
    tpts_seconds: float
    completion_seconds: float
    rollout_seconds: float
    wait_rollout_seconds: float
    wait_train_seconds: float
    train_seconds: float
    steps_per_hour: float
    rollout_busy: float
    train_busy: float
    sampled_tokens_total: float
    rollout_busy_seconds_total: float
    train_busy_seconds_total: float

    @classmethod
    def of(
        cls,
        *,
        histories: Mapping[str, JobHistory],
        sampler: BusyMeter,
        trainer: BusyMeter,
        one_at_a_time: bool,
        sampled_tokens: float = 0.0,
    ) -> Report:
        """Raises ``ValueError`` without jobs. A job that never committed or ended counts in no mean."""
        if not histories:
            raise ValueError("a report needs at least one job")
        jobs = list(histories.values())
        start = min(job.submitted_at for job in jobs)
        ends = [job.ended_at for job in jobs if job.ended_at is not None]
        last = max(ends, default=start)
        close = (last if one_at_a_time else min(ends)) if ends else start
        commits = {id(job): job.commits for job in jobs}
        steps = [step for job in jobs for step in job.steps if step.committed_at]
        window = close - start
        return cls(
            jobs=len(jobs),
            steps=len(steps),
            wall_seconds=last - start,
            ttfs_seconds=_mean(commits[id(job)][0] - job.submitted_at for job in jobs if commits[id(job)]),
            tpts_seconds=_mean(after - before for job in jobs for before, after in pairwise(commits[id(job)])),
            completion_seconds=_mean(job.ended_at - job.submitted_at for job in jobs if job.ended_at is not None),
            rollout_seconds=_mean(step.rolled_out_at - step.started_at for step in steps),
            wait_rollout_seconds=_mean(step.started_at - step.idle_at for step in steps),
            wait_train_seconds=_mean(step.train_at - step.rolled_out_at for step in steps),
            train_seconds=_mean(step.committed_at - step.train_at for step in steps),
            steps_per_hour=3600.0 * sum(step.committed_at <= close for step in steps) / window if window > 0 else 0.0,
            rollout_busy=sampler.share(start, close),
            train_busy=trainer.share(start, close),
            sampled_tokens_total=sampled_tokens,
            rollout_busy_seconds_total=sampler.seconds(start, last),
            train_busy_seconds_total=trainer.seconds(start, last),
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
