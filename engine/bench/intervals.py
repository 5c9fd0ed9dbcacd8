"""Stretches of time as (start, end) pairs: united, cut, subtracted, summed."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint and in order."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif end > start:
            joined.append((start, end))
    return joined


def minus(intervals: Iterable[Interval], taken: Iterable[Interval]) -> list[Interval]:
    """What of ``intervals`` lies outside ``taken``."""
    left = union(intervals)
    for start, end in union(taken):
        left = [piece for one in left for piece in _around(one, start, end)]
    return left


def within(intervals: Iterable[Interval], begin: float, end: float) -> list[Interval]:
    """What of ``intervals`` lies in [begin, end]."""
    return [(max(begin, start), min(end, stop)) for start, stop in intervals if max(begin, start) < min(end, stop)]


def seconds(intervals: Iterable[Interval]) -> float:
    """The time that at least one of ``intervals`` covers."""
    return sum(end - start for start, end in union(intervals))


def _around(one: Interval, start: float, end: float) -> list[Interval]:
    pieces = [(one[0], min(one[1], start)), (max(one[0], end), one[1])]
    return [piece for piece in pieces if piece[1] > piece[0]]
