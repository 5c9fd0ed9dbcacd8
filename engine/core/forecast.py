"""When each job's next phase begins and when it ends, as far as the pace so far tells.

Who waits is placed by playing the line forward: places and memory come free when those who hold them are expected to give them back, and
are taken in the line's order. What is not known (a pause, a closed door, a newcomer that will come before) is not guessed: then there is
no forecast, or it is the one without the newcomer. O(n log n) over all jobs.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.job import JobRecord

if TYPE_CHECKING:
    from engine.core.scheduler import Scheduler

FOREVER = float("inf")


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Seconds from now. ``next_seconds``: until its next phase begins; ``eta_seconds``: until its last commit. None: nobody knows."""

    next_seconds: float | None = None
    eta_seconds: float | None = None


UNKNOWN = Forecast()


def forecast_all(scheduler: Scheduler, at: float) -> dict[str, Forecast]:
    """For every open job. Before the first commit of any job nothing is known."""
    if scheduler.pace.step_seconds is None:
        return dict.fromkeys(scheduler.jobs, UNKNOWN)
    return _Forecaster(scheduler, at).all()


class _Room:
    """So many places and so many bytes, and when those that are taken come free."""

    def __init__(self, places: float, kv_bytes: float) -> None:
        self._places = places
        self._kv_bytes = kv_bytes
        self._place_ends: list[float] = []
        self._kv_ends: list[tuple[float, int]] = []
        self._at = 0.0

    def hold(self, *, place_until: float | None = None, kv_until: float | None = None, kv_bytes: int = 0) -> None:
        if place_until is not None:
            self._places -= 1
            heapq.heappush(self._place_ends, place_until)
        if kv_until is not None:
            self._kv_bytes -= kv_bytes
            heapq.heappush(self._kv_ends, (kv_until, kv_bytes))

    def wait(self, kv_bytes: int) -> float:
        """When the next in line, who needs a place and so many bytes, gets them. Nobody overtakes, so time only moves on."""
        while self._places < 1 and self._place_ends:
            self._at = max(self._at, heapq.heappop(self._place_ends))
            self._places += 1
        while self._kv_bytes < kv_bytes and self._kv_ends:
            until, freed = heapq.heappop(self._kv_ends)
            self._at = max(self._at, until)
            self._kv_bytes += freed
        return self._at


class _Forecaster:
    def __init__(self, scheduler: Scheduler, at: float) -> None:
        self._scheduler = scheduler
        self._policy = scheduler.policy
        self._jobs = scheduler.jobs
        self._at = at
        self._next: dict[str, float] = {}  # until the next phase
        self._step: dict[str, float] = {}  # until the commit of the step that is under way or next

    def all(self) -> dict[str, Forecast]:
        self._roll_out()
        self._train()
        if not self._scheduler.pipeline.draining:
            self._wait()
        return {job.job: self._forecast(job) for job in self._jobs.values()}

    def _forecast(self, job: JobRecord) -> Forecast:
        starts = self._next.get(job.job)
        if starts is None:
            return UNKNOWN
        if job.pausing:
            return Forecast(next_seconds=starts)
        ends = self._step[job.job] + (0.0 if job.stopping else self._later_steps(job))
        return Forecast(next_seconds=starts, eta_seconds=ends)

    # What is under way

    def _roll_out(self) -> None:
        for job in self._jobs.values():
            if job.phase == "rollout":
                self._next[job.job] = self._left(job, self._rollout_seconds(job))
                self._step[job.job] = self._next[job.job] + self._train_seconds(job)

    def _train(self) -> None:
        trainer = _Room(self._policy.train_slots, FOREVER)
        for job in self._jobs.values():
            if job.phase == "training":
                self._next[job.job] = self._step[job.job] = self._left(job, self._train_seconds(job))
                if job.at_trainer:
                    trainer.hold(place_until=self._step[job.job])
        for name in self._scheduler.pipeline.ready:
            self._next[name] = trainer.wait(0)
            self._step[name] = self._next[name] + self._train_seconds(self._jobs[name])
            trainer.hold(place_until=self._step[name])

    # Who waits

    def _wait(self) -> None:
        if self._policy.slot_hold == "step":
            self._take_turns([name for name in self._scheduler.turns() if self._may_start(self._jobs[name])])
            return
        self._wait_for_rollouts(list(self._scheduler.pipeline.rollouts))
        self._wait_for_places([name for name in self._scheduler.admission.queue if self._may_start(self._jobs[name])])

    def _may_start(self, job: JobRecord) -> bool:
        admission = self._scheduler.admission
        return job.phase == "idle" or (admission.mode == "open" and not admission.queue.is_parked(job.tenant))

    def _take_turns(self, line: list[str]) -> None:
        """A place until the commit, memory until the end of the rollout."""
        room = _Room(min(self._policy.max_active, self._most_rollouts()), self._kv_bytes())
        for job in self._jobs.values():
            rolls_until = self._next[job.job] if job.phase == "rollout" else None
            if job.in_step():
                room.hold(place_until=self._step[job.job], kv_until=rolls_until, kv_bytes=job.kv_bytes)
        for name in line:
            job = self._jobs[name]
            starts = self._begin(job, room.wait(job.kv_bytes))
            rolls_until = starts + self._rollout_seconds(job)
            room.hold(place_until=self._step[name], kv_until=rolls_until, kv_bytes=job.kv_bytes)

    def _wait_for_rollouts(self, line: list[str]) -> None:
        """Admitted jobs, where places are held for life: for a permit, and for memory where that is held per rollout."""
        needs_kv = self._policy.kv_hold == "rollout"
        room = _Room(self._most_rollouts(), self._kv_bytes() if needs_kv else FOREVER)
        for job in self._jobs.values():
            if job.phase == "rollout":
                room.hold(place_until=self._next[job.job], kv_until=self._next[job.job], kv_bytes=job.kv_bytes)
        for name in line:
            job = self._jobs[name]
            ends = self._begin(job, room.wait(job.kv_bytes if needs_kv else 0)) + self._rollout_seconds(job)
            room.hold(place_until=ends, kv_until=ends, kv_bytes=job.kv_bytes)

    def _wait_for_places(self, line: list[str]) -> None:
        """The queue, where places are held for life: until admitted jobs end."""
        needs_kv = self._policy.kv_hold == "life"
        room = _Room(self._policy.max_active, self._kv_bytes() if needs_kv else FOREVER)
        for job in self._jobs.values():
            if job.admitted:
                ends = self._step.get(job.job, 0.0) + self._later_steps(job)
                room.hold(place_until=ends, kv_until=ends, kv_bytes=job.kv_bytes)
        for name in line:
            job = self._jobs[name]
            self._begin(job, room.wait(job.kv_bytes if needs_kv else 0))
            ends = self._step[name] + self._later_steps(job)
            room.hold(place_until=ends, kv_until=ends, kv_bytes=job.kv_bytes)

    def _begin(self, job: JobRecord, starts: float) -> float:
        self._next[job.job] = starts
        self._step[job.job] = starts + self._rollout_seconds(job) + self._train_seconds(job)
        return starts

    def _most_rollouts(self) -> float:
        concurrency = self._scheduler.pipeline.concurrency
        return min(self._policy.max_rollouts or FOREVER, FOREVER if concurrency is None else concurrency.limit)

    def _kv_bytes(self) -> float:
        kv = self._scheduler.admission.kv
        return FOREVER if kv.budget_bytes is None else kv.budget_bytes * kv.overcommit

    # Paces

    def _rollout_seconds(self, job: JobRecord) -> float:
        return _known(job.rollout_seconds, self._scheduler.pace.rollout_seconds)

    def _train_seconds(self, job: JobRecord) -> float:
        return _known(job.train_seconds, self._scheduler.pace.train_seconds)

    def _step_seconds(self, job: JobRecord) -> float:
        return _known(job.step_seconds, self._scheduler.pace.step_seconds)

    def _later_steps(self, job: JobRecord) -> float:
        """All steps after the one that is under way or next."""
        return (job.steps - job.version - 1) * self._step_seconds(job)

    def _left(self, job: JobRecord, seconds: float) -> float:
        return max(0.0, seconds - (self._at - job.since))


def _known(own: float | None, of_all: float | None) -> float:
    """Before the first commit of any job nobody asks."""
    return own if own is not None else (of_all or 0.0)
