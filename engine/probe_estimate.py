"""What a few completions of some rows say about groups of any size: pure functions, standard library only.

A row's own pass rate p is not known, only n of its completions with k right. The share of groups of g that come out all alike is the mean
over rows of p^g + (1 − p)^g, and k/n in the place of p would be wrong: (k/n)^g is too large. Two estimators that are not:

- g ≤ n: the share of all ways to choose g of the row's n completions that are alike, Σ_v C(n_v, g) / C(n, g) over the values v that occur.
  It is unbiased and of the least variance (a U-statistic: Hoeffding 1948; for p^g the same as pass@k's, Chen et al. 2021,
  arXiv 2107.03374). With g = n it is the share of sampled groups that were alike.
- g > n, rewards of 0 and 1 only: the rows' rates are taken as Beta(a, b), fitted by its first two moments; then
  E[p^g] = Π_{i<g} (a + i) / (a + b + i) (Skellam 1948).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

Z95 = 1.959964
GROUP_SIZES = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """A mean with the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


def wilson(mean: float, n: int) -> Share:
    """The interval of the mean of ``n`` independent values within 0 … 1 (Wilson 1927).

    For such values no variance is larger than that of 0 and 1, so for the rows' estimates it is rather too wide than too narrow.
    """
    if n < 1:
        return Share(mean=mean, low=0.0, high=1.0)
    square = Z95**2 / n
    middle = (mean + square / 2) / (1 + square)
    half = Z95 * math.sqrt(max(0.0, mean * (1 - mean)) / n + square / (4 * n)) / (1 + square)
    return Share(mean=mean, low=max(0.0, middle - half), high=min(1.0, middle + half))


def interval(row_means: Sequence[float]) -> Share:
    """The mean over rows and its normal interval; rows, not completions, are independent."""
    mean = fmean(row_means) if row_means else 0.0
    if len(row_means) < 2:
        return Share(mean=mean, low=mean, high=mean)
    half = Z95 * math.sqrt(sum((value - mean) ** 2 for value in row_means) / (len(row_means) - 1) / len(row_means))
    return Share(mean=mean, low=mean - half, high=mean + half)


def all_of(count: int, n: int, g: int) -> float:
    """An unbiased estimate of p^g from ``count`` of ``n`` ≥ ``g``."""
    return math.comb(count, g) / math.comb(n, g)


def silent_share(rewards: Sequence[float | None], g: int) -> float:
    """The probability that a group of ``g`` ≤ len(rewards) completions of this row carries no signal, as the trainer sees it.

    Completions that could not be graded (None) are left out of a group; with fewer than two graded ones it carries no signal.
    """
    graded = [reward for reward in rewards if reward is not None]
    size = graded_size(len(graded), len(rewards), g)
    if size < 2:
        return 1.0
    return sum(all_of(count, len(graded), size) for count in Counter(graded).values())


def graded_size(graded: int, n: int, g: int) -> int:
    """How many of a group of ``g`` can be graded where ``graded`` of ``n`` could."""
    return round(g * graded / n) if n else 0


def right_share(rewards: Sequence[float | None], g: int) -> float:
    """The probability that all of a group of ``g`` are right (a reward of 1 and more)."""
    return _share(rewards, g, [reward is not None and reward >= 1 for reward in rewards])


def wrong_share(rewards: Sequence[float | None], g: int) -> float:
    """The probability that all of a group of ``g`` are wrong (a reward of 0 and less)."""
    return _share(rewards, g, [reward is not None and reward <= 0 for reward in rewards])


def _share(rewards: Sequence[float | None], g: int, counted: Sequence[bool]) -> float:
    return all_of(sum(counted), len(rewards), g)


@dataclass(frozen=True, kw_only=True, slots=True)
class Beta:
    """How rows' pass rates are spread: a/(a+b) on average. ``spread`` = 1/(a+b+1): 0, all rows alike, to 1, each always right or wrong."""

    mean: float
    spread: float

    def power(self, g: int) -> float:
        """E[p^g]."""
        return _rising(self.mean, self.spread, g)

    def silent(self, g: int) -> float:
        """E[p^g + (1 − p)^g]."""
        return _rising(self.mean, self.spread, g) + _rising(1 - self.mean, self.spread, g)


def _rising(mean: float, spread: float, g: int) -> float:
    """Π_{i<g} (a + i)/(a + b + i), with a and b written by mean and spread so that both ends (no spread, nothing else) are in it."""
    product = 1.0
    for i in range(g):
        product *= (mean * (1 - spread) + i * spread) / (1 - spread + i * spread) if i else mean
    return product


def fit_beta(rows: Sequence[tuple[int, int]]) -> Beta | None:
    """The Beta whose first two moments are the rows' own: ``rows`` of (right, graded); those with fewer than two graded say nothing.

    E[p] from k/n, E[p²] from k(k − 1)/(n(n − 1)), both unbiased; the square of the mean less its own variance.
    """
    rows = [(right, graded) for right, graded in rows if graded >= 2]
    if not rows:
        return None
    rates = [right / graded for right, graded in rows]
    mean = fmean(rates)
    if not 0 < mean < 1:
        return Beta(mean=mean, spread=0.0)
    second = fmean(right * (right - 1) / (graded * (graded - 1)) for right, graded in rows)
    variance = sum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1) / len(rates) if len(rates) > 1 else 0.0
    square = mean**2 - variance
    return Beta(mean=mean, spread=min(1.0, max(0.0, (second - square) / (mean - square))) if mean > square else 0.0)
