"""How many jobs may roll out at once, found by watching the sampler's cache: additive increase, multiplicative decrease.

The estimate that admission goes by is the worst case (every completion at full context), so the cache is mostly half empty when it says
"full". This limit lets more in for as long as the cache bears it, and takes back when it does not.

    pressure (preemptions, or a queue that grows beside a full cache) ──▶ cut, once, until the cut has taken effect
    a full house and room for one more like those inside              ──▶ one more, once per ``settle_seconds``

A pure state machine: the only clock is the samples' own ``at``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Adaptive:
    """The parameters. Their defaults suit rollouts of seconds to minutes; the two that follow a rollout's length are the settling times.

    ``start``: the first limit. Low enough to do no harm before anything was measured; the first minutes raise it.
    ``cut``: what is left of the limit after pressure. A cut throws away no work (nothing is evicted, only the next starts wait), and one
    that was too small is repeated, so it is milder than TCP's half.
    ``room``: one more job is let in while the cache's use, scaled to one more such job, stays below this share. The rest is for
    completions that have yet to grow, and for evaluations.
    ``full``: a growing queue of requests counts as pressure from this share on; below it, requests wait for the sampler's batch, not for
    memory, and fewer jobs would only make it idle.
    ``settle_seconds``: between two raises. A job that has just begun holds almost nothing yet; judged at once, it would invite a dozen
    more before the first has grown: about a fifth of a usual rollout.
    ``cooldown_seconds``: after a cut neither cut nor raise, so that one burst, which takes several samples, cuts once.
    ``probe_seconds``: how long a limit that has hurt is remembered. Below it raises are quick, to it and above only after this time:
    what oscillates, oscillates this slowly.
    ``overcommit``: the summed estimates may reach this multiple of the KV budget. It bounds what a wrong reading can do.
    """

    start: int = 4
    cut: float = 0.75
    room: float = 0.9
    full: float = 0.9
    settle_seconds: float = 2.0
    cooldown_seconds: float = 5.0
    probe_seconds: float = 60.0
    overcommit: float = 4.0

    def __post_init__(self) -> None:
        if not isinstance(self.start, int) or self.start < 1:
            raise ValueError(f"policy.adaptive.start must be a whole number from 1, got {self.start}")
        for name in ("cut", "room", "full"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"policy.adaptive.{name} must lie between 0 and 1, got {getattr(self, name)}")
        for name in ("settle_seconds", "cooldown_seconds", "probe_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"policy.adaptive.{name} must not be negative, got {getattr(self, name)}")
        if not 1 <= self.overcommit < float("inf"):
            raise ValueError(f"policy.adaptive.overcommit must be at least 1, got {self.overcommit}")


class Concurrency:
    """``limit`` is 1 at least, so that something always runs. ``observe`` every sample in the order of time."""

    def __init__(self, adaptive: Adaptive) -> None:
        self.adaptive = adaptive
        self.limit = adaptive.start
        self._waiting = 0
        self._rolling = 0
        self._peak = 0.0  # the highest use since the limit was last moved
        self._reached_at: float | None = None  # since when as many jobs as allowed roll out
        self._cut_at = float("-inf")
        self._ceiling = 0  # how many jobs rolled out when it last hurt

    def observe(self, *, at: float, used: float, waiting: int, preempted: int, rolling: int) -> None:
        """Take in a sample (see ``messages.KvSample``); ``rolling``: jobs in rollout now."""
        grows, self._waiting = waiting > self._waiting, waiting
        causes, self._rolling = max(rolling, self._rolling), rolling  # who preempted since the last sample may have ended since
        self._peak = max(self._peak, used)
        if self._reached_at is None and rolling >= self.limit:
            self._reached_at = at
        if preempted > 0 or (grows and used >= self.adaptive.full):
            if causes and self._may_cut(at, causes):
                self._cut(at, causes)
        elif self._may_raise(at, rolling):
            self._move(self.limit + 1)

    def _may_cut(self, at: float, rolling: int) -> bool:
        """Jobs that were let in before the last cut go on: until they have left, pressure says nothing about the new limit."""
        first = self._cut_at == float("-inf")
        return first or (at - self._cut_at >= self.adaptive.cooldown_seconds and rolling <= self.limit)

    def _cut(self, at: float, rolling: int) -> None:
        self._cut_at = at
        self._ceiling = rolling
        self._move(min(int(rolling * self.adaptive.cut), rolling - 1, self.limit))

    def _may_raise(self, at: float, rolling: int) -> bool:
        """Only a limit that is reached is raised: one that nobody needs would grow without end, and be worth nothing in a rush."""
        adaptive = self.adaptive
        if rolling != self.limit or self._reached_at is None or at - self._reached_at < adaptive.settle_seconds:
            return False
        patience = adaptive.cooldown_seconds if self.limit + 1 < self._ceiling else adaptive.probe_seconds
        return at - self._cut_at >= patience and self._peak * (rolling + 1) < adaptive.room * rolling

    def _move(self, limit: int) -> None:
        self.limit = max(1, limit)
        self._reached_at = None
        self._peak = 0.0
