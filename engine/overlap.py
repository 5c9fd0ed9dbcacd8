"""How much the jobs' phases overlap, from the spans of their ``step`` events: the figures that say whether sharing one engine pays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.events import Span

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Shares in 0..1. ``rollout_overlap``: of the time from the first rollout's start to the last commit, with ≥ 2 jobs in rollout.

    ``train_rollout_overlap``: of the training time of all jobs, with another job in rollout.
    """

    rollout_overlap: float
    train_rollout_overlap: float


def overlap(spans_by_job: Mapping[str, Iterable[Span]]) -> Overlap:
    """From all spans of all jobs. Both shares are 0 when nothing ran."""
    spans = [(job, span) for job, own in spans_by_job.items() for span in own]
    rollouts = [(job, (span.start, span.end)) for job, span in spans if span.phase == "rollout"]
    trains = [(job, (span.start, span.end)) for job, span in spans if span.phase == "train"]
    commits = [span.end for _, span in spans if span.phase in ("train", "commit")]
    if not rollouts or not commits:
        return Overlap(rollout_overlap=0.0, train_rollout_overlap=0.0)
    window = max(commits) - min(start for _, (start, _) in rollouts)
    shared = _total(_covered([interval for _, interval in rollouts], at_least=2))
    beside = sum(_seconds_within(interval, _union(other for owner, other in rollouts if owner != job)) for job, interval in trains)
    return Overlap(rollout_overlap=_share(shared, window), train_rollout_overlap=_share(beside, _total(interval for _, interval in trains)))


def busy_seconds(intervals: Iterable[Interval]) -> float:
    """The time that at least one of ``intervals`` covers."""
    return _total(_union(intervals))


def _covered(intervals: Iterable[Interval], *, at_least: int) -> list[Interval]:
    """The disjoint stretches that at least so many intervals cover."""
    edges = sorted(edge for start, end in intervals for edge in ((start, 1), (end, -1)))
    stretches: list[Interval] = []
    depth, began = 0, 0.0
    for moment, change in edges:
        before, depth = depth, depth + change
        if before < at_least <= depth:
            began = moment
        elif depth < at_least <= before:
            stretches.append((began, moment))
    return stretches


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    return _covered(intervals, at_least=1)


def _seconds_within(interval: Interval, stretches: list[Interval]) -> float:
    start, end = interval
    return sum(max(0.0, min(end, right) - max(start, left)) for left, right in stretches)


def _total(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
