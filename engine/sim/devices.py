"""Devices in virtual time: a sampler that its users share, and a meter of when a device has work."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from engine.sim.clock import Alarm, VirtualClock


class BusyMeter:
    """The spans of time in which at least one piece of work was there."""

    def __init__(self) -> None:
        self._count = 0
        self._since = 0.0
        self._spans: list[tuple[float, float]] = []

    def began(self, now: float) -> None:
        if not self._count:
            self._since = now
        self._count += 1

    def ended(self, now: float) -> None:
        self._count -= 1
        if not self._count:
            self._spans.append((self._since, now))

    def share(self, start: float, end: float) -> float:
        """Busy share of the window [start, end]; 0 for an empty window. Work that still goes on counts up to ``end``."""
        spans = self._spans + ([(self._since, end)] if self._count else [])
        busy = sum(max(0.0, min(e, end) - max(s, start)) for s, e in spans)
        return busy / (end - start) if end > start else 0.0


class SharedSampler:
    """A fluid model of continuous batching: n rollouts at once proceed at 1 / (1 + ``contention`` · (n − 1)) of a lone one's speed each.

    ``contention`` 0: batching costs nothing; 1: it gains nothing. All proceed alike, so the next to finish is the one whose work ends
    first on the common progress scale: O(log n) for each begin and end, however often the speed changes.
    """

    def __init__(self, clock: VirtualClock, contention: float) -> None:
        self.meter = BusyMeter()
        self._clock = clock
        self._contention = contention
        self._progress = 0.0
        self._moved_at = 0.0
        self._ends: list[tuple[float, int, str]] = []
        self._live: dict[str, tuple[int, Callable[[], object]]] = {}
        self._count = 0
        self._alarm: Alarm | None = None

    def begin(self, job: str, work_seconds: float, done: Callable[[], object]) -> None:
        """Start work that a lone job would finish in ``work_seconds``; ``done`` is called at its end."""
        self._move()
        self._count += 1
        self._live[job] = (self._count, done)
        heapq.heappush(self._ends, (self._progress + work_seconds, self._count, job))
        self.meter.began(self._clock.now)
        self._set_alarm()

    def abort(self, job: str) -> None:
        """Drop the job's work, if it has any."""
        if job in self._live:
            self._move()
            del self._live[job]
            self.meter.ended(self._clock.now)
            self._set_alarm()

    def _speed(self) -> float:
        return 1.0 / (1.0 + self._contention * (len(self._live) - 1)) if self._live else 0.0

    def _move(self) -> None:
        self._progress += (self._clock.now - self._moved_at) * self._speed()
        self._moved_at = self._clock.now

    def _first(self) -> tuple[float, str] | None:
        while self._ends:
            end, number, job = self._ends[0]
            if job in self._live and self._live[job][0] == number:
                return end, job
            heapq.heappop(self._ends)
        return None

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        first = self._first()
        if first is not None:
            wait = max(0.0, first[0] - self._progress) / self._speed()
            self._alarm = self._clock.call_in(wait, self._ring)

    def _ring(self) -> None:
        self._move()
        first = self._first()
        if first is None:
            return
        _, done = self._live.pop(first[1])
        self.meter.ended(self._clock.now)
        self._set_alarm()
        done()
