"""Time as an argument: what the manager may ask a clock, the real one, and one timeline per process."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def utc(self) -> datetime:
        """The time of day, with time zone UTC."""
        ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def utc(self) -> datetime:
        return datetime.now(UTC)


class Timeline:
    """UTC stamps whose differences are monotonic: the time of day is read once, the rest is the monotonic clock.

    All stamps of one manager come from here, so durations computed from them cannot be spoiled by a step of the system's clock.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self._offset_seconds = clock.utc().timestamp() - clock.monotonic()

    def seconds(self) -> float:
        """Now, in UTC epoch seconds."""
        return self._clock.monotonic() + self._offset_seconds

    def at(self, seconds: float | None = None) -> datetime:
        """``seconds`` (default: now) as a datetime in UTC."""
        return datetime.fromtimestamp(self.seconds() if seconds is None else seconds, UTC)

    def monotonic(self, moment: datetime | None = None) -> float:
        """``moment`` (default: now) on the monotonic clock."""
        return self._clock.monotonic() if moment is None else moment.timestamp() - self._offset_seconds
