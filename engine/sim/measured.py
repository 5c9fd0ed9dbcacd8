"""``Speeds`` of a machine that was measured (``profile``)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, fields
from functools import cached_property

from engine.sim.profile import DecodePoint, MachineProfile
from engine.sim.speeds import Overheads


@dataclass(frozen=True)
class MeasuredSpeeds:
    """``collocated``: sampling and training have the whole machine in turn."""

    profile: MachineProfile
    collocated: bool = False

    @property
    def max_sequences(self) -> float:
        return float(self.profile.max_sequences)

    @property
    def kv_capacity_tokens(self) -> float | None:
        return self.profile.kv_capacity_tokens

    @cached_property
    def overheads(self) -> Overheads:
        return Overheads(**{field.name: getattr(self.profile, field.name) for field in fields(Overheads)})

    def iteration_seconds(self, sequences: float, adapters: int, context_tokens: float) -> float:
        """Between the measured points in a straight line, by sequences and then by adapters; beyond the last the line goes on."""
        curves = self._curves
        counts = sorted(curves)
        known = [_along(curves[count], sequences) for count in counts]
        seconds = _along(list(zip(map(float, counts), known, strict=True)), float(max(1, adapters)), beyond=False)
        return seconds / self._sampling_speedup

    def prefill_seconds(self, tokens: float) -> float:
        return tokens / self.profile.prefill_tokens_per_second / self._sampling_speedup

    def train_seconds(self, tokens: float) -> float:
        speedup = self.profile.collocated_training_speedup if self.collocated else 1.0
        return (self.profile.train_fixed_seconds + self.profile.train_seconds_per_token * tokens) / speedup

    @property
    def _sampling_speedup(self) -> float:
        return self.profile.collocated_sampling_speedup if self.collocated else 1.0

    @cached_property
    def _curves(self) -> dict[int, list[tuple[float, float]]]:
        """By number of adapters: (sequences, seconds of an iteration), ascending."""
        found: dict[int, list[tuple[float, float]]] = {}
        for point in sorted(self.profile.decode, key=_size):
            found.setdefault(point.adapters, []).append((float(point.sequences), point.sequences / point.tokens_per_second))
        return found


def _size(point: DecodePoint) -> tuple[int, int]:
    return point.adapters, point.sequences


def _along(curve: list[tuple[float, float]], x: float, *, beyond: bool = True) -> float:
    """``curve`` at ``x``: flat before its first point; after its last in the direction of the last two, never falling, or flat."""
    if x <= curve[0][0] or len(curve) == 1:
        return curve[0][1] if x <= curve[0][0] or not beyond else curve[0][1] * x / curve[0][0]
    at = bisect_left(curve, (x,))
    if at == len(curve):
        if not beyond:
            return curve[-1][1]
        (x0, y0), (x1, y1) = curve[-2:]
        return y1 + max(0.0, (y1 - y0) / (x1 - x0)) * (x - x1)
    (x0, y0), (x1, y1) = curve[at - 1], curve[at]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
