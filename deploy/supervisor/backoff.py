"""When a crashed part may start again. Pure: the clock is an argument."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Doubling delays between restarts; a part that stayed up for ``steady_seconds`` starts over at the first delay.

    ``failures``: crashes in a row, none of them after a steady life. ``up_since``: when the part became ready, None while it is not.
    """

    first_seconds: float = 0.5
    longest_seconds: float = 30.0
    steady_seconds: float = 60.0
    failures: int = 0
    up_since: float | None = None

    def came_up(self, at: float) -> Backoff:
        return replace(self, up_since=at)

    def crashed(self, at: float) -> Backoff:
        steady = self.up_since is not None and at - self.up_since >= self.steady_seconds
        return replace(self, failures=1 if steady else self.failures + 1, up_since=None)

    @property
    def delay_seconds(self) -> float:
        """How long to wait now; 0 before the first crash."""
        if self.failures == 0:
            return 0.0
        # The exponent is bounded so that a part which crashes for days cannot overflow the float.
        return min(self.first_seconds * 2 ** min(self.failures - 1, 30), self.longest_seconds)
