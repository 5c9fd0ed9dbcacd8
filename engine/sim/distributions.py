"""Lognormals with a cap: lengths in tokens, waits in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()


@dataclass(frozen=True, kw_only=True, slots=True)
class CappedLogNormal:
    """``min(cap, X)`` with ln X normal: median ``median``, standard deviation ``sigma`` (0: always the median)."""

    median: float
    sigma: float
    cap: float = math.inf

    def quantile(self, q: float) -> float:
        """The value that a share ``q`` (0 < q < 1) of the draws stays below."""
        return min(self.cap, self.median * math.exp(self.sigma * _z(q)))

    def mean(self) -> float:
        return self._moment(1)

    def band_mean(self, low: float, high: float) -> float:
        """The mean of the draws between the quantiles ``low`` < ``high``, so that the bands of a partition add up to ``mean``."""
        if not self.sigma:
            return min(self.cap, self.median)
        reach = math.inf if math.isinf(self.cap) else math.log(self.cap / self.median) / self.sigma
        start, end = (_z(q) if 0 < q < 1 else math.copysign(math.inf, q - 0.5) for q in (low, high))
        start, end = min(start, reach), min(end, reach)
        below = math.exp(self.sigma**2 / 2) * self.median * (_NORMAL.cdf(end - self.sigma) - _NORMAL.cdf(start - self.sigma))
        capped = high - max(low, _NORMAL.cdf(reach))
        return (below + (self.cap * capped if capped > 0 else 0.0)) / (high - low)

    def summed(self, count: int) -> CappedLogNormal:
        """The sum of ``count`` independent draws, as the lognormal of equal mean and variance (Fenton, 1960). The caps add up."""
        return _summed(self, count)

    def _moment(self, order: int) -> float:
        """E[min(cap, X)^order]; both parts in closed form."""
        if not self.sigma:
            return min(self.cap, self.median) ** order
        if math.isinf(self.cap):
            return self.median**order * math.exp((order * self.sigma) ** 2 / 2)
        reach = math.log(self.cap / self.median) / self.sigma
        below = self.median**order * math.exp((order * self.sigma) ** 2 / 2) * _NORMAL.cdf(reach - order * self.sigma)
        return below + self.cap**order * (1 - _NORMAL.cdf(reach))


@cache
def _summed(one: CappedLogNormal, count: int) -> CappedLogNormal:
    if count == 1:
        return one
    mean = one.mean()
    spread = max(0.0, one._moment(2) - mean**2) / (count * mean**2)
    sigma = math.sqrt(math.log1p(spread))
    return CappedLogNormal(median=count * mean / math.exp(sigma**2 / 2), sigma=sigma, cap=count * one.cap)


@lru_cache(maxsize=4096)
def _z(q: float) -> float:
    return _NORMAL.inv_cdf(min(max(q, 1e-12), 1 - 1e-12))
