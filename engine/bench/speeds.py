"""From timed samplings and trainings to the speeds of a machine profile: slopes and intercepts. Pure arithmetic.

A batch of S requests, each with a prompt of P tokens, that samples N tokens each takes

    delay + S · request + S · P / prefill + (N − 1) · iteration(S)

(the first token comes out of the prefill). The differences between batches that differ in one thing alone give each part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression, median

from engine.sim.profile import DecodePoint


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """``seconds``: of each repetition of a batch of ``sequences`` requests over ``adapters`` adapters."""

    sequences: int
    adapters: int
    prompt_tokens: int
    new_tokens: int
    seconds: tuple[float, ...]

    @property
    def typical(self) -> float:
        return median(self.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """``fixed`` + ``slope`` · x, neither below 0: a measured trifle may come out negative."""

    fixed: float
    slope: float


def decode_points(timed: Sequence[Timed]) -> list[DecodePoint]:
    """One point a pair of timings that differ in ``new_tokens`` alone."""
    return [
        DecodePoint(sequences=few.sequences, adapters=few.adapters, tokens_per_second=few.sequences / iteration_seconds(few, many))
        for few, many in pairs(timed)
    ]


def pairs(timed: Sequence[Timed]) -> list[tuple[Timed, Timed]]:
    """(few, many) new tokens of each size."""
    sizes = dict.fromkeys((one.sequences, one.adapters) for one in timed)
    found = [sorted((one for one in timed if (one.sequences, one.adapters) == size), key=lambda one: one.new_tokens) for size in sizes]
    return [(own[0], own[-1]) for own in found if len(own) > 1]


def iteration_seconds(few: Timed, many: Timed) -> float:
    return max(1e-6, (many.typical - few.typical) / (many.new_tokens - few.new_tokens))


def prefill_rate(short: Timed, long: Timed) -> float:
    """Tokens per second, from two batches whose prompts differ in length alone."""
    return short.sequences * (long.prompt_tokens - short.prompt_tokens) / max(1e-6, long.typical - short.typical)


def request_costs(timed: Sequence[Timed], prefill_tokens_per_second: float) -> Line:
    """``slope``: seconds of sampler per request, ``fixed``: the delay of a batch; from the batches under one adapter."""
    sizes, rests = [], []
    for few, many in pairs([one for one in timed if one.adapters == 1]):
        prefill = few.sequences * few.prompt_tokens / prefill_tokens_per_second
        sizes.append(float(few.sequences))
        rests.append(few.typical - (few.new_tokens - 1) * iteration_seconds(few, many) - prefill)
    return fitted(sizes, rests)


def fitted(sizes: Sequence[float], seconds: Sequence[float]) -> Line:
    """The least-squares line; with a negative part left out where one comes out."""
    if len(set(sizes)) < 2:
        return Line(fixed=max(0.0, fmean(seconds)), slope=0.0)
    slope, fixed = linear_regression(sizes, seconds)
    if fixed < 0:
        slope, fixed = sum(x * y for x, y in zip(sizes, seconds, strict=True)) / sum(x * x for x in sizes), 0.0
    if slope < 0:
        slope, fixed = 0.0, fmean(seconds)
    return Line(fixed=max(0.0, fixed), slope=max(0.0, slope))


def slowdown(alone: Sequence[float], beside: Sequence[float]) -> float:
    """How much longer the same work takes beside the other device's; 1.0 where it was not seen to."""
    return max(1.0, median(beside) / median(alone)) if alone and beside else 1.0


def split_by(runs: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Durations of ``runs`` (alone, beside): those outside the whole stretch of ``others``, and those inside it."""
    if not others:
        return [end - start for start, end in runs], []
    first, last = others[0][0], others[-1][1]
    alone = [end - start for start, end in runs if end <= first or start >= last]
    return alone, [end - start for start, end in runs if start >= first and end <= last]
