"""Held-out evaluation in the background: it neither blocks nor fails its job.

What a version made of each row is kept in the store; the ``eval`` event says what it comes to, held against version 0 row by row.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from engine.adapters import SamplerAdapters
from engine.checkup import look_at
from engine.core.messages import EvalDone, StartEval
from engine.data import Datasets, eval_rows
from engine.driver import FATAL, Deadlines, Driver
from engine.evaluation import decode
from engine.history import JobHistory
from engine.paired import best, change, compare
from engine.ports import AdapterRef, EvalRequest, EvalResult, PortError, RolloutPort, Row
from engine.store import Store, UnknownVersion
from engine.stubborn import stubbornly

logger = logging.getLogger(__name__)

BASE = 0  # the version that all others are held against


@dataclass(kw_only=True)
class Evaluator:
    """``slots``: how many evaluations run at once, over all jobs; of one tenant's jobs only one.

    So a tenant whose reward hangs, which takes an evaluation's whole deadline, keeps nobody else's jobs from their ends.
    """

    driver: Driver
    store: Store
    datasets: Datasets
    rollout: RolloutPort
    adapters: SamplerAdapters
    deadlines: Deadlines
    slots: int = 4

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.slots)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by tenant, while somebody holds it or waits

    async def evaluate(self, command: StartEval) -> None:
        job = self.driver.history.jobs[command.job]
        try:
            data = await self._stubbornly(job, command.version)
            self.driver.say(job.job, "eval", data)
            look_at(self.driver, job)
        except FATAL:
            raise
        except Exception as error:
            reason = error.reason if isinstance(error, PortError) else f"{type(error).__name__}: {error}"
            logger.error("%s: evaluation of version %d failed", job.job, command.version, exc_info=error)
            message = f"the evaluation of version {command.version} failed: {reason}"
            self.driver.say(job.job, "warning", {"code": "eval_failed", "message": message, "advice": "", "version": command.version})
        finally:
            self.adapters.unpin(job.job, command.version)
        self.driver.tell(EvalDone(at=self.driver.timeline.monotonic(), job=job.job, version=command.version))
        self.adapters.tidy(job.job)

    async def _stubbornly(self, job: JobHistory, version: int) -> dict[str, Any]:
        """Again when the platform failed: a curve that misses its first or last point answers nothing."""

        def on_failure(error: PortError) -> None:
            logger.warning("%s: evaluation of version %d: %s; trying again", job.job, version, error.reason)
            self.adapters.forget(job.job, version)

        tries = self.driver.scheduler.policy.max_attempts
        return await stubbornly(lambda: self._once(job, version), tries=tries, on_failure=on_failure)

    async def _once(self, job: JobHistory, version: int) -> dict[str, Any]:
        async with self._turns.setdefault(job.tenant, asyncio.Lock()), self._places:
            event = await self.driver.say(job.job, "eval_started", {"version": version})
            await self.adapters.tidied(job.job)
            adapter = self.adapters.load(job, version, load_id=event.offset)
            request = await asyncio.to_thread(self._request, job, adapter)
            seconds = request.deadline_seconds + self.deadlines.grace
            result = await self.driver.call(self.rollout.evaluate(request), seconds=seconds, what="evaluation")
            return await asyncio.to_thread(self._concluded, job, version, result)

    def _concluded(self, job: JobHistory, version: int, result: EvalResult) -> dict[str, Any]:
        """Keep the rows, and say what they come to."""
        self.store.put_evaluation(job.job, version, result.rows)
        earlier = {number: evaluated.reward for number, evaluated in job.evaluations.items()}
        rewards = {**earlier, version: result.data["reward_mean"]}
        found = best({number: reward for number, reward in rewards.items() if reward is not None})
        return {**result.data, "comparison": self._compared(job, version), "best": found}

    def _compared(self, job: JobHistory, version: int) -> dict[str, Any] | None:
        if version == BASE:
            return None
        try:
            return compared(self.store, job, version, against=BASE)
        except UnknownVersion:
            return None  # its evaluation failed, and a warning says so

    def _request(self, job: JobHistory, adapter: AdapterRef) -> EvalRequest:
        return EvalRequest(
            adapter=adapter,
            spec=job.spec,
            rows=self._rows(job),
            adapter_files=self.store.adapter(job.job, adapter.version),
            deadline_seconds=self.deadlines.evaluate,
        )

    def _rows(self, job: JobHistory) -> list[Row]:
        dataset = job.spec.dataset
        return self.datasets.rows(dataset.eval, eval_rows(dataset.eval_rows, job.spec.eval.max_rows))


def compared(store: Store, job: JobHistory, version: int, *, against: int) -> dict[str, Any] | None:
    """``paired.Comparison`` as a dict with ``against``, the same whenever it is asked for. Raises ``UnknownVersion``."""
    before, after = (decode(store.read_evaluation(job.job, v)).rewards for v in (against, version))
    found = compare(before, after, np.random.default_rng([job.spec.seed, against, version]))
    return None if found is None else {"against": against, **found.as_dict()}


def paired_rows(store: Store, job: JobHistory, version: int, *, against: int) -> list[dict[str, Any]]:
    """Each row that both versions were evaluated on: ``change``, and what either answered. Raises ``UnknownVersion``."""
    before, after = ({row.row: row for row in decode(store.read_evaluation(job.job, v)).rows} for v in (against, version))
    return [
        {
            "row": number,
            "change": change(before[number].reward, row.reward),
            "before": msgspec.to_builtins(before[number]),
            "after": msgspec.to_builtins(row),
        }
        for number, row in after.items()
        if number in before
    ]
