"""Devices in virtual time: a meter of when a device has work, a sampler that all jobs share, and a trainer."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable

from engine.sim.clock import Alarm, VirtualClock
from engine.sim.speeds import Speeds

Done = Callable[[], object]


def _nobody(busy: bool) -> None:
    return None


class BusyMeter:
    """The spans of time in which at least one piece of work was there. ``on_change`` is told when the first comes and the last goes."""

    def __init__(self, on_change: Callable[[bool], None] = _nobody) -> None:
        self.on_change = on_change
        self._count = 0
        self._since = 0.0
        self.spans: list[tuple[float, float]] = []

    def began(self, now: float, pieces: int = 1) -> None:
        self._count += pieces
        if self._count == pieces:
            self._since = now
            self.on_change(True)

    def ended(self, now: float) -> None:
        self._count -= 1
        if not self._count:
            if self.spans and self.spans[-1][1] == self._since:
                self.spans[-1] = (self.spans[-1][0], now)
            elif now > self._since:
                self.spans.append((self._since, now))
            self.on_change(False)

    @property
    def busy(self) -> bool:
        return self._count > 0

    def seconds(self, start: float, end: float) -> float:
        """Busy time within [start, end]; work that still goes on counts up to ``end``."""
        spans = self.spans + ([(self._since, end)] if self._count else [])
        first = max(0, bisect_left(spans, (start, start)) - 1)
        return sum(max(0.0, min(e, end) - max(s, start)) for s, e in spans[first:])

    def share(self, start: float, end: float) -> float:
        """Busy share of the window [start, end]; 0 for an empty window."""
        return self.seconds(start, end) / (end - start) if end > start else 0.0


class Request:
    """``sequences`` alike that ask for ``new_tokens`` each on top of ``context_tokens`` each. ``prefill_seconds``: of the device.

    ``kv_tokens``: cached in the end; ``load_tokens``: cached on average while it decodes. Both of all its sequences.
    """

    __slots__ = ("done", "gone", "iterations", "job", "kv_tokens", "load_tokens", "prefill_seconds", "sequences")

    def __init__(self, job: str, sequences: int, context_tokens: float, new_tokens: float, prefill_seconds: float, done: Done) -> None:
        self.job = job
        self.sequences = sequences
        self.kv_tokens = sequences * (context_tokens + new_tokens)
        self.load_tokens = sequences * (context_tokens + new_tokens / 2)
        self.iterations = new_tokens - 1.0 if new_tokens > 1.0 else 0.0  # the prefill yields the first token
        self.prefill_seconds = prefill_seconds
        self.done = done
        self.gone = False


class FluidSampler:
    """Continuous batching as a fluid: every running sequence gains 1 / ``iteration_seconds`` tokens a second.

    All proceed alike, so the next to finish is the one whose end comes first on the common scale of tokens: O(log n) for each begin and
    end, however often the speed changes. Adapter loads and prefills take the whole device in turn, first come first served, and hold up
    what decodes. What does not fit (sequences, KV) waits in one line, as inside vLLM; a request larger than everything runs alone, slower.
    """

    def __init__(self, clock: VirtualClock, speeds: Speeds) -> None:
        self.meter = BusyMeter()
        self._clock, self._iteration_seconds = clock, speeds.iteration_seconds
        self._most, self._capacity = speeds.max_sequences, speeds.kv_capacity_tokens
        self._slowdown = 1.0
        self._progress = 0.0  # tokens that a sequence running since the start would have
        self._moved_at = 0.0
        self._stalls: deque[tuple[float, Done]] = deque()  # on the scale of seconds stalled
        self._stalled = 0.0
        self._stall_end = 0.0
        self._ends: list[tuple[float, int, Request]] = []
        self._waiting: deque[Request] = deque()
        self._jobs: dict[str, int] = {}
        self._sequences = 0
        self._kv = 0.0
        self._load = 0.0
        self._rate = 0.0
        self._count = 0
        self._alarm: Alarm | None = None

    def stall(self, seconds: float, done: Done) -> None:
        """Keep the whole device busy for ``seconds`` of its time (an adapter load), then call ``done``."""
        if seconds <= 0:
            done()
            return
        self._move()
        self.meter.began(self._clock.now)
        self._stall_for(seconds)
        self._stalls.append((self._stall_end, done))
        self._set_alarm()

    def submit(self, requests: list[Request]) -> None:
        self._move()
        self._waiting.extend(requests)
        self.meter.began(self._clock.now, len(requests))
        self._admit()
        self._set_alarm()

    def abort(self, job: str) -> None:
        """Drop all requests of ``job``; their ``done`` is never called. A load that goes on is finished."""
        self._move()
        for request in [r for r in self._waiting if r.job == job]:
            self._waiting.remove(request)
            self.meter.ended(self._clock.now)
        for _, _, request in self._ends:
            if request.job == job and not request.gone:
                self._leave(request)
        self._admit()
        self._set_alarm()

    @property
    def kv_used(self) -> float:
        """Share of the cache that what runs will have filled in the end, 0..1; 0 without a bound."""
        return min(1.0, self._kv / self._capacity) if self._capacity else 0.0

    @property
    def waiting(self) -> int:
        """Sequences that wait inside the sampler."""
        return sum(request.sequences for request in self._waiting)

    def slow_down(self, factor: float) -> None:
        """From now on everything takes ``factor`` times as long."""
        if factor != self._slowdown:
            self._move()
            self._slowdown = factor
            self._set_alarm()

    def _admit(self) -> None:
        waiting = self._waiting
        while waiting and self._fits(waiting[0]):
            request = waiting.popleft()
            self._sequences += request.sequences
            self._kv += request.kv_tokens
            self._load += request.load_tokens
            self._jobs[request.job] = self._jobs.get(request.job, 0) + 1
            self._stall_for(request.prefill_seconds)
            self._count += 1
            heapq.heappush(self._ends, (self._progress + request.iterations, self._count, request))
        self._set_rate()

    def _fits(self, request: Request) -> bool:
        if not self._sequences:
            return True
        if self._sequences + request.sequences > self._most:
            return False
        return self._capacity is None or self._kv + request.kv_tokens <= self._capacity

    def _stall_for(self, seconds: float) -> None:
        if self._stall_end < self._stalled:
            self._stall_end = self._stalled
        self._stall_end += seconds

    def _leave(self, request: Request) -> None:
        request.gone = True
        self._sequences -= request.sequences
        self._kv -= request.kv_tokens
        self._load -= request.load_tokens
        left = self._jobs[request.job] - 1
        if left:
            self._jobs[request.job] = left
        else:
            del self._jobs[request.job]
        if not self._sequences:
            self._kv = self._load = 0.0  # no drift of rounding from one busy period to the next
        self.meter.ended(self._clock.now)

    def _set_rate(self) -> None:
        sequences, most = self._sequences, self._most
        if not sequences:
            self._rate = 0.0
        elif sequences <= most:
            self._rate = 1.0 / self._iteration_seconds(sequences, len(self._jobs), self._load)
        else:  # one request larger than everything: its sequences take turns
            share = most / sequences
            self._rate = share / self._iteration_seconds(most, len(self._jobs), self._load * share)

    def _move(self) -> None:
        """Bring both scales up to now."""
        seconds = (self._clock.now - self._moved_at) / self._slowdown
        if not seconds:
            return
        self._moved_at = self._clock.now
        stall = self._stall_end - self._stalled
        if stall > 0:
            stalled = stall if stall < seconds else seconds
            self._stalled += stalled
            seconds -= stalled
        self._progress += seconds * self._rate

    def _next(self) -> float | None:
        """Seconds until something ends, as things stand."""
        ends = self._ends
        while ends and ends[0][2].gone:
            heapq.heappop(ends)
        stall = max(0.0, self._stalls[0][0] - self._stalled) if self._stalls else None
        if not ends:
            return stall if stall is None else stall * self._slowdown
        decode = (ends[0][0] - self._progress) / self._rate
        if decode < 0.0:
            decode = 0.0
        if self._stall_end > self._stalled:
            decode += self._stall_end - self._stalled
        return (decode if stall is None else min(stall, decode)) * self._slowdown

    def _set_alarm(self) -> None:
        wait = self._next()
        alarm = self._alarm
        if wait is None:
            return
        at = self._clock.now + wait
        if alarm is not None and alarm.action is not None and alarm.at <= at:
            return  # it rings too early, looks, and sets itself anew: cheaper than a new alarm for every change
        if alarm is not None:
            alarm.cancel()
        self._alarm = self._clock.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._move()
        ended = self._ended_requests()
        if self._stalls:
            ended = self._ended_stalls() + ended
        if ended:
            self._admit()
        self._set_alarm()
        for done in ended:
            done()

    def _ended_stalls(self) -> list[Done]:
        ended: list[Done] = []
        while self._stalls and self._stalls[0][0] - self._stalled <= self._slack():
            ended.append(self._stalls.popleft()[1])
            self.meter.ended(self._clock.now)
        return ended

    def _ended_requests(self) -> list[Done]:
        ended: list[Done] = []
        slack = self._slack()
        if self._stall_end - self._stalled > slack:
            return ended
        ends, reached = self._ends, self._progress + slack * self._rate
        while ends and ends[0][0] <= reached:
            request = heapq.heappop(ends)[2]
            if not request.gone:
                self._leave(request)
                ended.append(request.done)
        return ended

    def _slack(self) -> float:
        """What rounding may have taken, in seconds."""
        return 1e-9 * max(1.0, self._clock.now)


class FluidTrainer:
    """Pieces of work side by side, one per slot, each at full speed unless the machine's other half slows them all down."""

    def __init__(self, clock: VirtualClock) -> None:
        self.meter = BusyMeter()
        self._clock = clock
        self._slowdown = 1.0
        self._progress = 0.0
        self._moved_at = 0.0
        self._ends: list[tuple[float, int, Done]] = []
        self._count = 0
        self._alarm: Alarm | None = None

    def train(self, seconds: float, done: Done) -> None:
        self._move()
        self._count += 1
        heapq.heappush(self._ends, (self._progress + seconds, self._count, done))
        self.meter.began(self._clock.now)
        self._set_alarm()

    def slow_down(self, factor: float) -> None:
        if factor != self._slowdown:
            self._move()
            self._slowdown = factor
            self._set_alarm()

    def _move(self) -> None:
        self._progress += (self._clock.now - self._moved_at) / self._slowdown
        self._moved_at = self._clock.now

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._ends:
            self._alarm = self._clock.call_in(max(0.0, self._ends[0][0] - self._progress) * self._slowdown, self._ring)

    def _ring(self) -> None:
        self._move()
        _, _, done = heapq.heappop(self._ends)
        self.meter.ended(self._clock.now)
        self._set_alarm()
        done()
