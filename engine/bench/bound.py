"""The least time in which a machine could do the jobs' work, whatever the schedule. Pure arithmetic over what ``replay`` measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """Seconds. ``rollout_s``: the sampler's work, ``train_s``: the trainer's, ``path_s``: the longest job by itself, tools included.

    No schedule is faster than the largest of the three: each device does one thing at a time, and a job's steps follow one another.
    ``ordered_s``: both devices at once with the jobs' steps in order (``ordered``), None where it was not measured. It is no part of the
    bound, and closer to what can be reached.
    """

    rollout_s: float
    train_s: float
    path_s: float
    ordered_s: float | None = None

    @property
    def seconds(self) -> float:
        return max(self.rollout_s, self.train_s, self.path_s)

    @property
    def binding(self) -> str:
        """Which of the three it is."""
        named = {"rollout device": self.rollout_s, "trainer": self.train_s, "longest job": self.path_s}
        return max(named, key=lambda name: named[name])


def train_seconds(measured: Sequence[float], steps: int) -> float:
    """The trainer's work of ``steps`` steps of one kind, of which ``measured`` holds some."""
    return fmean(measured) * steps if measured else 0.0


def path_seconds(tools: Sequence[float], measured: Mapping[int, float], train: float) -> float:
    """A job's own path: ``tools``: seconds that the slowest episode of each step waits for its tools; ``measured``: how long some of the
    steps (by index) took in full when sampled alone, tools waited for; ``train``: seconds of one training.

    What a measured step took beyond its slowest tools is what sampling adds to each step.
    """
    beyond = fmean(max(0.0, seconds - tools[step]) for step, seconds in measured.items()) if measured else 0.0
    return sum(tools) + len(tools) * (beyond + train)
