"""Reads the sampler's memory counters at a steady pace and tells the scheduler, while there is anything to learn from them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from engine.core.messages import KvSample
from engine.driver import FATAL, Driver
from engine.ports import RolloutPort

logger = logging.getLogger(__name__)


class KvSamples:
    """``await run()`` until cancelled. It samples only while jobs roll out under an adaptive policy; a failed reading is left out.

    ``seconds``: from one sample to the next; ``stats_seconds``: how long a reading may take.
    """

    def __init__(self, driver: Driver, rollout: RolloutPort, *, seconds: float, stats_seconds: float):
        self._driver = driver
        self._rollout = rollout
        self._seconds = seconds
        self._stats_seconds = stats_seconds
        self._preempted: int | None = None  # the counter's last reading; None: nothing to compare with

    async def run(self) -> None:
        """An error of the engine itself ends the manager: a scheduler that is no longer fed would keep its last limit for ever."""
        try:
            while True:
                await asyncio.sleep(self._seconds)
                await self._sample()
        except FATAL as error:
            self._driver.die(error)
        except Exception as error:
            logger.exception("sampling the sampler's memory broke")
            self._driver.die(error)

    async def _sample(self) -> None:
        pipeline = self._driver.scheduler.pipeline
        if pipeline.concurrency is None or not pipeline.rolling:
            self._preempted = None
            return
        try:
            stats = await self._driver.call(self._rollout.stats(), seconds=self._stats_seconds, what="the sampler's counters")
        except Exception:
            logger.warning("the sampler's counters are not to be had", exc_info=True)
            return
        self._driver.tell(self._fact(stats))

    def _fact(self, stats: dict[str, Any]) -> KvSample:
        preempted = int(stats.get("preempted", 0))
        before, self._preempted = self._preempted, preempted
        since = 0 if before is None else max(0, preempted - before)  # a sampler that was started anew counts from 0
        at = self._driver.timeline.monotonic()
        return KvSample(at=at, used=float(stats.get("kv_used", 0.0)), waiting=int(stats.get("waiting", 0)), preempted=since)
