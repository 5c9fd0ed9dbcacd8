"""Figures of the window: pure functions from steps to what the overview draws. Times are epoch seconds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from portal.console.recent import Step

BINS = 12
Interval = tuple[float, float]


def merged(intervals: Iterable[Interval], gap: float = 0.0) -> list[Interval]:
    """In order, those that touch or lie no more than ``gap`` apart being one."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def clipped(intervals: Iterable[Interval], since: float, until: float) -> list[Interval]:
    return [(max(start, since), min(end, until)) for start, end in intervals if end > since and start < until]


def busy_share(intervals: Iterable[Interval], since: float, until: float) -> float:
    """The share of the window in which at least one of ``intervals`` lasts."""
    covered = sum(end - start for start, end in merged(clipped(intervals, since, until)))
    return covered / (until - since) if until > since else 0.0


def gantt(steps: Sequence[Step], running: Sequence[tuple[str, str, float]], since: float, until: float) -> dict[str, dict[str, list]]:
    """{job: {lane: [[start, end] …]}} in seconds since ``since``; ``running``: (job, lane, start) of what has not ended yet.

    What a screen cannot tell apart is one bar: a day of tenth-second steps must not become a megabyte.
    """
    spans: dict[str, dict[str, list[Interval]]] = defaultdict(lambda: defaultdict(list))
    for step in steps:
        for lane, start, end in step.lanes:
            spans[step.job][lane].append((start, end))
    for job, lane, start in running:
        spans[job][lane].append((start, until))
    gap = (until - since) / 1200
    drawn = {
        job: {
            lane: [[round(a - since, 2), round(b - since, 2)] for a, b in merged(clipped(found, since, until), gap)]
            for lane, found in by.items()
        }
        for job, by in spans.items()
    }
    return {job: {lane: bars for lane, bars in by.items() if bars} for job, by in drawn.items() if any(by.values())}


def first_steps(steps: Iterable[Step]) -> list[float]:
    """TTFS: submission to first commit, of the jobs whose first step lies in the window."""
    return [step.committed - step.submitted for step in steps if step.version == 1]


def paces(steps: Iterable[Step]) -> list[float]:
    """TPTS: commit to next commit of one job."""
    by_job: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        by_job[step.job].append(step)
    return [b.committed - a.committed for found in by_job.values() for a, b in pairwise(found) if b.version == a.version + 1]


def distribution(values: Sequence[float]) -> dict[str, Any]:
    """Quantiles and a histogram with bins of equal ratio, since seconds and hours stand side by side."""
    ordered = sorted(value for value in values if value >= 0)
    if not ordered:
        return {"count": 0, "p10": None, "p50": None, "p90": None, "bins": []}
    low, high = max(1e-3, ordered[0]), max(1e-3, ordered[-1])
    return {
        "count": len(ordered),
        **{f"p{percent}": round(quantile(ordered, percent / 100), 3) for percent in (10, 50, 90)},
        "bins": _bins(ordered, low, high),
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of a sorted, non-empty sequence; between two neighbours in a straight line."""
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _bins(ordered: Sequence[float], low: float, high: float) -> list[dict[str, float]]:
    if high / low < 1.001:
        return [{"from": low, "to": high, "rows": len(ordered)}]
    ratio = (high / low) ** (1 / BINS)
    counts = [0] * BINS
    for value in ordered:
        counts[min(BINS - 1, max(0, int(math.log(max(low, value) / low) / math.log(ratio))))] += 1
    return [{"from": low * ratio**n, "to": low * ratio ** (n + 1), "rows": count} for n, count in enumerate(counts)]


def fairness(tokens: dict[str, int], weights: dict[str, float]) -> list[dict[str, Any]]:
    """By tenant that was served or waits: its share of the tokens of the window against its share of the weights.

    A tenant that has stopped has a share of the tokens and none of the weights; it stands in the table without a due share.
    """
    total, weight = sum(tokens.values()), sum(weights.values())
    names = sorted(tokens.keys() | weights.keys(), key=lambda name: (-tokens.get(name, 0), name))
    return [
        {
            "tenant": name,
            "tokens": tokens.get(name, 0),
            "served": tokens.get(name, 0) / total if total else 0.0,
            "due": weights[name] / weight if name in weights and weight else None,
            "weight": weights.get(name),
        }
        for name in names
    ]
