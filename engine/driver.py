"""Facts in, commands out, commands done: the loop between the scheduler, which decides, and the world, which is slow and fails.

    tell(fact) ─▶ Scheduler.handle ─▶ commands ─▶ one task each in ``work`` ─▶ ports, store, journal ─▶ tell(fact) …

Nothing is decided here. Everything runs on one event loop; only the store's files are read and written in threads. An exception of one
job's task ends that job; a lost epoch or a failed journal write ends the manager (``on_fatal``), and its successor goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from engine import logs
from engine.clock import Timeline
from engine.core.messages import (
    Abort,
    Admit,
    Command,
    Fact,
    Hold,
    PrepareTrain,
    Release,
    StartEval,
    StartRollout,
    StartTrain,
    Stopped,
    Submitted,
    TrainFailed,
)
from engine.core.scheduler import Scheduler
from engine.epoch import StaleEpoch
from engine.event_log import EventLog
from engine.events import Event
from engine.history import EngineHistory, JobHistory
from engine.journal import JournalBroken
from engine.ports import PortError
from engine.queue_events import left_idle, may_change_queue, newly_waiting
from engine.steps import ended_data

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")
Work = Callable[[], Coroutine[Any, Any, None]]
FATAL = (StaleEpoch, JournalBroken)


@dataclass(frozen=True, kw_only=True, slots=True)
class Deadlines:
    """Seconds after which a port's silence counts as the platform's failure.

    ``grace``: how much longer than its request's deadline a port may take, to notice that deadline and clean up.
    """

    rollout: float = 1800.0
    train: float = 1800.0
    fresh: float = 300.0
    evaluate: float = 1800.0
    control: float = 60.0  # abort, unload
    stats: float = 2.0
    grace: float = 60.0


class Driver:
    """``work`` (set by the manager) has a coroutine method for each command that takes time."""

    def __init__(
        self, *, scheduler: Scheduler, history: EngineHistory, log: EventLog, timeline: Timeline, on_fatal: Callable[[BaseException], None]
    ):
        self.scheduler = scheduler
        self.history = history
        self.log = log
        self.timeline = timeline
        self.work: Any = None
        self._on_fatal = on_fatal
        self._tasks: dict[str, dict[str, asyncio.Task[None]]] = {}
        self._dead = False
        self._obey: dict[type[Command], Callable[[Any], None]] = {
            Admit: self._admit,
            StartRollout: lambda command: self.spawn(command.job, "rollout", partial(self.work.rollout, command)),
            PrepareTrain: lambda command: self.spawn(command.job, "prepare", partial(self.work.prepare_training, command)),
            StartTrain: self._start_train,
            StartEval: self._start_eval,
            Abort: self._abort,
            Hold: self._hold,
            Release: self._release,
        }

    # Facts and events

    def tell(self, fact: Fact) -> None:
        """Let the scheduler hear ``fact``, and do what it says."""
        if self._dead:
            return
        commands = self.scheduler.handle(fact)
        for command in commands:
            self._obey[type(command)](command)
        if may_change_queue(fact, commands):
            self._report_waiting()
        elif (job := left_idle(fact, commands)) is not None:
            self._report_waiting(job)

    def say(self, job: str, kind: str, data: dict[str, Any], *, at_seconds: float | None = None) -> asyncio.Future[Event]:
        """Journal an event and take it into the history at once; await the future where it must be durable first."""
        at = self.timeline.at(at_seconds)
        future = self.log.post(job, kind, data, at=at)
        self.history.apply(job, kind, data, at)
        return future

    def enter(self, job: JobHistory) -> None:
        """Tell the scheduler of a job that has a version 0: a new one, or one that an earlier manager left behind.

        One that was told to stop meanwhile ends here: nothing of it is running.
        """
        if job.stop is not None:
            self.end(job.job, state=job.stop["outcome"], reason=job.stop["reason"], attribution=job.stop["attribution"])
        else:
            self.tell(submitted(job, self.timeline))

    def stop_job(self, job: str, *, outcome: str, reason: str, attribution: str) -> None:
        """End ``job``; its ``stop_requested`` is journaled already."""
        self.tell(Stopped(at=self.timeline.monotonic(), job=job, outcome=outcome, reason=reason, attribution=attribution))

    def fail_job(self, job: str, reason: str, attribution: str) -> None:
        stop = {"outcome": "failed", "reason": reason, "attribution": attribution}
        self.say(job, "stop_requested", stop)
        self.stop_job(job, **stop)

    # Tasks and calls

    def spawn(self, job: str, name: str, work: Work, *, broke: Callable[[str], Fact] | None = None) -> asyncio.Task[None]:
        """Run ``work()`` for ``job`` as its task ``name``, replacing one of that name that has ended.

        An exception of it ends the job; ``broke(reason)`` is then told as well, where the scheduler waits for an answer.
        """
        task = asyncio.create_task(self._guarded(job, work, broke), name=f"{job}:{name}")
        self._tasks.setdefault(job, {})[name] = task
        task.add_done_callback(lambda done: self._forget(job, name, done))
        return task

    def task(self, job: str, name: str) -> asyncio.Task[None] | None:
        return self._tasks.get(job, {}).get(name)

    async def call(self, answer: Awaitable[Answer], *, seconds: float, what: str) -> Answer:
        """Await a port. Raises ``PortError`` after ``seconds``, and when the other side gave up."""
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise PortError(f"{what}: no answer within {seconds:g} s") from None
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():
                raise
            raise PortError(f"{what} was cancelled by the other side") from None

    async def stop(self) -> None:
        """Let go of everything, as a process that dies would: nothing is journaled, the next manager goes on from the disk."""
        self._dead = True
        tasks = [task for own in self._tasks.values() for task in own.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def die(self, error: BaseException) -> None:
        """This manager can do nothing right any more."""
        if not self._dead:
            self._dead = True
            self._on_fatal(error)

    async def _guarded(self, job: str, work: Work, broke: Callable[[str], Fact] | None) -> None:
        with logs.about(job=job, tenant=self.history.jobs[job].tenant):
            await self._ending_its_job(job, work, broke)

    async def _ending_its_job(self, job: str, work: Work, broke: Callable[[str], Fact] | None) -> None:
        try:
            await work()
        except asyncio.CancelledError:
            raise
        except FATAL as error:
            self.die(error)
        except Exception as error:
            logger.exception("job %s ends by an error of the engine itself", job)
            reason = f"internal error: {type(error).__name__}: {error}"
            if self.history.jobs[job].ended is None:
                self.fail_job(job, reason, "platform")
            if broke is not None:
                self.tell(broke(reason))
        except BaseException as error:
            self.die(error)

    def _forget(self, job: str, name: str, done: asyncio.Task[None]) -> None:
        own = self._tasks.get(job, {})
        if own.get(name) is done:
            del own[name]
        if not own:
            self._tasks.pop(job, None)

    # Commands that are done at once

    def _admit(self, command: Admit) -> None:
        place = self.scheduler.admission
        self.say(command.job, "admitted", {"slots_used": len(place.slots), "kv_reserved_bytes": place.kv.reserved_bytes})

    def _start_train(self, command: StartTrain) -> None:
        """Whatever becomes of it, the scheduler hears of its end: a trainer slot that nobody gives back would stop every tenant."""
        numbers = {"job": command.job, "version": command.version, "attempt": command.attempt}

        def broke(reason: str) -> Fact:
            return TrainFailed(at=self.timeline.monotonic(), reason=reason, attribution="platform", **numbers)

        self.spawn(command.job, "train", partial(self.work.train, command), broke=broke)

    def _start_eval(self, command: StartEval) -> None:
        self.work.adapters.pin(command.job, command.version)
        self.spawn(command.job, f"eval@{command.version}", partial(self.work.evaluate, command))

    def _abort(self, command: Abort) -> None:
        for name, task in self._tasks.get(command.job, {}).items():
            if name == "rollout" or name.startswith("eval@"):
                task.cancel()
        self.spawn(command.job, "abort", partial(self.work.adapters.abort, command.job))

    def _hold(self, command: Hold) -> None:
        job = self.history.jobs[command.job]
        if not job.paused:
            why = {"reason": job.pause["reason"]} if job.pause.get("code") else {}  # a person knows why he paused it
            self.say(command.job, "paused", {"version": job.version, **why})
        self.work.adapters.tidy(command.job)

    def _release(self, command: Release) -> None:
        self.end(command.job, state=command.outcome, reason=command.reason, attribution=command.attribution)
        others = list(self._tasks.get(command.job, {}).values())
        self.spawn(command.job, "close", partial(self.work.adapters.close, command.job, after=others))

    def end(self, job: str, *, state: str, reason: str, attribution: str) -> None:
        """Journal the ending."""
        at = self.timeline.seconds()
        data = ended_data(self.history.jobs[job], state=state, reason=reason, attribution=attribution, at=self.timeline.at(at))
        self.say(job, "ended", data, at_seconds=at)

    def _report_waiting(self, only: str | None = None) -> None:
        for job, data in list(newly_waiting(self.scheduler, lambda name: self.history.jobs[name].waiting_code, only)):
            self.say(job, "waiting", data)


def submitted(job: JobHistory, timeline: Timeline) -> Submitted:
    """The fact that puts ``job`` into the scheduler where its history left it."""
    spec = job.spec
    has_eval = spec.dataset.eval is not None and spec.dataset.eval_rows > 0
    return Submitted(
        at=timeline.monotonic(job.accepted_at),
        job=job.job,
        tenant=job.tenant,
        steps=spec.train.steps,
        kv_bytes=job.kv_bytes,
        weight=job.submission.weight,
        running_cap=job.submission.running_cap,
        priority=job.priority,
        version=job.version,
        attempt=job.attempt,
        ready_attempt=job.ready["attempt"] if job.ready else None,
        step_tokens=spec.context_tokens * spec.rollout.completions_per_step,
        eval_every=spec.eval.every if has_eval else 0,
        eval_ends=has_eval,
        last_evaluated=job.last_evaluated,
        admitted=job.admitted,
        paused=job.pausing,
    )
