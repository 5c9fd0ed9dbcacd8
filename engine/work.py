"""What the scheduler's commands mean: one coroutine per command, from the snapshot on disk through a port to the next fact.

Policy versions enter a port only as committed files read from the store (never "what is live on the device"), and leave it only through
``store.commit``. An answer's failure becomes the fact that the scheduler knows; the traceback goes to the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from engine.adapters import SamplerAdapters
from engine.checkup import look_at, look_for_invalid, look_for_silence
from engine.core.messages import (
    Fact,
    PrepareTrain,
    RolloutDone,
    RolloutFailed,
    StartEval,
    StartRollout,
    StartTrain,
    TrainDone,
    Trained,
    TrainFailed,
)
from engine.data import Datasets
from engine.driver import FATAL, Deadlines, Driver
from engine.evaluator import Evaluator
from engine.history import JobHistory
from engine.late_rewards import LOOK_SECONDS, LateRewards
from engine.ports import PortError, RolloutPort, TrainPort, TrainResult
from engine.step_sampler import StepSampler
from engine.steps import TrainTimes, rollout_ready_data, step_data, with_commit
from engine.store import Store
from engine.stubborn import stubbornly
from engine.train_requests import TrainRequests
from engine.warm_start import begun_with

logger = logging.getLogger(__name__)

SOLVED = "Every completion was right: the job has learnt what these prompts ask. It may end here, or go on with harder ones."
UNGRADED = "No completion could be graded, so there was nothing to learn from. The Reward Lab shows what the reward does with one."
ADVICE = {
    "no_signal": "All completions of each group scored alike. Easier or harder prompts or a finer grader give it something to learn.",
    "nonfinite": "The gradient was not finite, so the adapter was left as it was. A lower learning rate usually helps.",
}


class Work:
    """Carries the commands out."""

    def __init__(
        self,
        driver: Driver,
        *,
        store: Store,
        datasets: Datasets,
        rollout: RolloutPort,
        train: TrainPort,
        deadlines: Deadlines,
        late_look_seconds: float = LOOK_SECONDS,
    ):
        self._driver = driver
        self._store = store
        self._train = train
        self._train_requests = TrainRequests(driver, store=store, train=train, deadlines=deadlines)
        self._deadlines = deadlines
        self._preparing = asyncio.Lock()
        self.adapters = SamplerAdapters(driver, rollout, control_seconds=deadlines.control)
        parts = {"store": store, "datasets": datasets, "rollout": rollout, "adapters": self.adapters, "deadlines": deadlines}
        late = LateRewards(driver, rollout, stats_seconds=deadlines.stats, look_seconds=late_look_seconds)
        self._sampler = StepSampler(driver=driver, late=late, **parts)
        self._evaluator = Evaluator(driver=driver, **parts)

    # Version 0

    async def prepare(self, job: JobHistory) -> None:
        """Make version 0, then let the job queue. A job that cannot get one ends before it began.

        One after the other, since the trainer takes one call at a time anyway: so jobs enter the queue in the order of their acceptance.
        """
        async with self._preparing:
            await self._prepare(job)

    async def _prepare(self, job: JobHistory) -> None:
        try:
            snapshot = await self._fresh(job)
            if (origin := job.spec.warm_start) is not None:
                snapshot = await asyncio.to_thread(begun_with, self._store, origin, snapshot)
            await asyncio.to_thread(self._store.create, job.job, snapshot)
        except FATAL:
            raise
        except Exception as error:
            stop = job.stop or {"outcome": "failed", **blame(error, f"{job.job}: version 0")}
            self._driver.end(job.job, state=stop["outcome"], reason=stop["reason"], attribution=stop["attribution"])
        else:
            self._driver.enter(job)

    async def _fresh(self, job: JobHistory) -> dict[str, bytes]:
        def call() -> Awaitable[dict[str, bytes]]:
            return self._driver.call(self._train.fresh(job.job, job.spec), seconds=self._deadlines.fresh, what="making version 0")

        def on_failure(error: PortError) -> None:
            logger.warning("job %s: %s; trying again", job.job, error.reason)

        return await stubbornly(call, tries=self._driver.scheduler.policy.max_attempts, on_failure=on_failure)

    # Rollout

    async def rollout(self, command: StartRollout) -> None:
        job = self._driver.history.jobs[command.job]
        idle_since, started = job.idle_since, self._driver.timeline.seconds()
        numbers = {"version": command.version, "attempt": command.attempt}
        event = await self._driver.say(job.job, "rollout_started", numbers)
        try:
            summary, certificate = await self._sampler.sample(job, command, load_id=event.offset)
        except FATAL:
            raise
        except Exception as error:
            await self.adapters.abort(job.job)  # whatever is still being sampled for it: the next attempt starts from nothing
            self.adapters.doubt(job.job)
            self._lost("rollout_lost", RolloutFailed, command, error)
            return
        ready = self._driver.timeline.seconds()
        data = rollout_ready_data(**numbers, summary=summary, certificate=certificate, idle_since=idle_since, started=started, ready=ready)
        self._driver.say(job.job, "rollout_ready", data)
        self._driver.tell(RolloutDone(at=self._now(), job=job.job, **numbers, tokens=served_tokens(summary)))

    # Training

    async def prepare_training(self, command: PrepareTrain) -> None:
        await self._train_requests.prepare(self._driver.history.jobs[command.job], command)

    async def train(self, command: StartTrain) -> None:
        job = self._driver.history.jobs[command.job]
        numbers = {"version": command.version, "attempt": command.attempt}
        self._driver.say(job.job, "train_started", numbers)
        try:
            step, times = await self._train_and_commit(job, command)
        except FATAL:
            raise
        except Exception as error:
            self._lost("train_lost", TrainFailed, command, error)
            return
        self._driver.say(job.job, "step", with_commit(step, times), at_seconds=times.committed)
        self._warn_of_skipped(job.job, step)
        look_at(self._driver, job)
        look_for_invalid(self._driver, job, step["rollout"])
        look_for_silence(self._driver, job)
        self._driver.tell(TrainDone(at=self._now(), job=job.job, **numbers))
        self.adapters.tidy(job.job)

    async def _train_and_commit(self, job: JobHistory, command: StartTrain) -> tuple[dict[str, Any], TrainTimes]:
        started = self._driver.timeline.seconds()
        request = await self._train_requests.take(job, command)
        # The port keeps the request's deadline itself, and mends what is stuck; the grace is for a port that does not even do that.
        seconds = request.deadline_seconds + self._deadlines.grace
        result = await self._driver.call(self._train.step(request), seconds=seconds, what="training")
        times = TrainTimes(started=started, trained=self._driver.timeline.seconds())
        self._driver.tell(Trained(at=self._now(), job=job.job, version=command.version, attempt=command.attempt))
        step = await asyncio.to_thread(self._commit, job, command.version + 1, result, times)
        committed = TrainTimes(started=started, trained=times.trained, committed=self._driver.timeline.seconds())
        return step, committed

    def _commit(self, job: JobHistory, version: int, result: TrainResult, times: TrainTimes) -> dict[str, Any]:
        """Commit the version together with its step's data, from which a crash before the journal's ``step`` event is repaired."""
        if result.token_mismatch:
            self._store.put_mismatch(job.job, version - 1, job.ready["attempt"], result.token_mismatch)
        adapter = result.snapshot["adapter_model.safetensors"]
        step = step_data(ready=job.ready, metrics=result.metrics, times=times, adapter=adapter)
        self._store.commit(job.job, version, result.snapshot, {"committed_at": times.trained, "data": step})
        return step

    def _warn_of_skipped(self, job: str, step: dict[str, Any]) -> None:
        if (code := step["skipped"]) is not None:
            message = f"step {step['step']} was committed without an update ({code})"
            advice = _advice(code, step["rollout"])
            self._driver.say(job, "warning", {"code": code, "message": message, "advice": advice, "step": step["step"]})

    # Evaluation

    async def evaluate(self, command: StartEval) -> None:
        await self._evaluator.evaluate(command)

    # Answers

    def _lost(self, kind: str, fact: Callable[..., Fact], command: StartRollout | StartTrain, error: Exception) -> None:
        numbers = {"version": command.version, "attempt": command.attempt}
        why = blame(error, f"{command.job}: {kind} {numbers}")
        self._driver.say(command.job, kind, {**numbers, **why})
        self._driver.tell(fact(at=self._now(), job=command.job, **numbers, **why))

    def _now(self) -> float:
        return self._driver.timeline.monotonic()


def _advice(code: str, rollout: dict[str, Any]) -> str:
    """What to do about a step that was skipped for ``code``."""
    if code == "no_signal" and rollout["invalid"] == rollout["completions"]:
        return UNGRADED
    if code == "no_signal" and rollout["groups_all_right"] == rollout["groups"]:
        return SOLVED
    return ADVICE.get(code, "")


def served_tokens(summary: dict[str, Any]) -> int:
    """What the fair share is charged with: the tokens read and sampled, as they are billed."""
    return summary["prompt_tokens"] + summary.get("env_tokens", 0) + summary["sampled_tokens"]


def blame(error: Exception, what: str) -> dict[str, str]:
    """Reason and attribution of a failure. What is no ``PortError`` is the platform's, and its traceback goes to the log."""
    if isinstance(error, PortError):
        logger.warning("%s: %s (%s)", what, error.reason, error.attribution)
        return {"reason": error.reason, "attribution": error.attribution}
    logger.error("%s failed", what, exc_info=error)
    return {"reason": f"{type(error).__name__}: {error}", "attribution": "platform"}
