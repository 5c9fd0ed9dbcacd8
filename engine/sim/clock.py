"""Virtual time: a heap of what happens next. Nothing here knows the real clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Alarm:
    """Something that will happen at ``at`` unless it is cancelled."""

    __slots__ = ("action", "at")

    def __init__(self, at: float, action: Callable[[], None]) -> None:
        self.at = at
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class VirtualClock:
    """Seconds from 0. Alarms at the same second ring in the order in which they were set."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Alarm]] = []
        self._count = 0

    def call_at(self, at: float, action: Callable[[], None]) -> Alarm:
        """Set an alarm. Raises ``ValueError`` for a time that has passed."""
        if at < self.now:
            raise ValueError(f"it is {self.now}, too late for {at}")
        alarm = Alarm(at, action)
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, alarm))
        return alarm

    def call_in(self, seconds: float, action: Callable[[], None]) -> Alarm:
        return self.call_at(self.now + seconds, action)

    def step(self) -> bool:
        """Move to the next alarm and ring it; False when there is none."""
        while self._heap:
            at, _, alarm = heapq.heappop(self._heap)
            if alarm.action is not None:
                self.now = at
                alarm.action()
                return True
        return False
