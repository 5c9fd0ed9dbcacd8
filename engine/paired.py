"""Did it get better? Two versions of one job, held against each other on the same held-out rows.

Pure: the caller brings the generator of random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95
DRAWS_IN_MEMORY = 2**18

Change = Literal["win", "loss", "tie", "invalid"]
Rewards = Mapping[int, float | None]  # by row; None: its grading failed


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The mean difference (after − before) over ``rows`` rows, with the ends of its interval, in units of reward.

    ``low`` and ``high`` are None below two rows: one pair tells nothing of how much it varies. ``invalid``: rows of either version that
    could not be graded, which count nowhere else. ``unit_range``: every reward lay in 0–1, so that differences may be called points.
    """

    rows: int
    before: float
    after: float
    difference: float
    low: float | None
    high: float | None
    wins: int
    losses: int
    ties: int
    invalid: int
    unit_range: bool

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict()}

    def verdict(self) -> str:
        """In words: "better by 12.4 points (8.1 to 16.9)". Better or worse is said only where the interval leaves zero out."""
        if self.low is None or self.high is None:
            return f"{self._signed(self.difference)} on one row, which tells nothing"
        if self.low > 0:
            return f"better by {self._size(self.difference)}{self._unit()} ({self._size(self.low)} to {self._size(self.high)})"
        if self.high < 0:
            return f"worse by {self._size(self.difference)}{self._unit()} ({self._size(self.high)} to {self._size(self.low)})"
        if not self.wins and not self.losses:
            return "the same on every row"
        between = f"({self._signed(self.low)} to {self._signed(self.high)})"
        return f"no clear difference: {self._signed(self.difference)}{self._unit()} {between}"

    def _size(self, difference: float) -> str:
        return f"{100 * abs(difference):.1f}" if self.unit_range else f"{abs(difference):.3g}"

    def _signed(self, difference: float) -> str:
        return f"{'−' if difference < 0 else '+'}{self._size(difference)}"

    def _unit(self) -> str:
        return " points" if self.unit_range else ""


def compare(before: Rewards, after: Rewards, rng: np.random.Generator) -> Comparison | None:
    """Paired by row; rows that only one of them has are left out. None when no row was graded in both."""
    shared = [row for row in before if row in after]
    changes = [change(before[row], after[row]) for row in shared]
    pairs = np.array([(before[r], after[r]) for r, c in zip(shared, changes, strict=True) if c != "invalid"], dtype=float)
    if not len(pairs):
        return None
    differences = pairs[:, 1] - pairs[:, 0]
    low, high = interval(differences, rng)
    return Comparison(
        rows=len(pairs),
        before=float(pairs[:, 0].mean()),
        after=float(pairs[:, 1].mean()),
        difference=float(differences.mean()),
        low=low,
        high=high,
        wins=changes.count("win"),
        losses=changes.count("loss"),
        ties=changes.count("tie"),
        invalid=changes.count("invalid"),
        unit_range=bool(pairs.min() >= 0 and pairs.max() <= 1),
    )


def change(before: float | None, after: float | None) -> Change:
    """What became of one row."""
    if before is None or after is None:
        return "invalid"
    return "tie" if before == after else ("win" if after > before else "loss")


def interval(differences: np.ndarray, rng: np.random.Generator) -> tuple[float | None, float | None]:
    """The percentile bootstrap's interval of the mean (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, §13.3).

    Some resamples at a time: a bounded number of draws in memory, however many rows there are.
    """
    size = len(differences)
    if size < 2:
        return None, None
    at_once = max(1, DRAWS_IN_MEMORY // size)
    counts = [min(at_once, RESAMPLES - begun) for begun in range(0, RESAMPLES, at_once)]
    means = [differences[rng.integers(size, size=(count, size))].mean(axis=1) for count in counts]
    low, high = np.quantile(np.concatenate(means), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def best(rewards: Mapping[int, float]) -> int | None:
    """The version with the highest held-out reward; of equals the earliest. Version 0 takes part: it may be that nothing beats it."""
    return min(rewards, key=lambda version: (-rewards[version], version), default=None)
