"""All lanes of a runner, by (key, source); idle ones end when others need their place, or after a while."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engine.rewards.sandbox.coding import CodeRunner
from engine.rewards.sandbox.lanes import Lane
from engine.rewards.sandbox.nursery import Nursery
from engine.rewards.sandbox.slots import Slots
from engine.rewards.sandbox.verdicts import CodeTest, Output, Ran, TestOutcome, Verdict

_IDLE_SECONDS = 600.0
_SWEEP_SECONDS = 30.0


class Registry:
    def __init__(self, nursery: Nursery, *, max_workers: int):
        self._nursery = nursery
        self._slots = Slots(nursery, limit=max_workers, evict=self._evict)
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._code = CodeRunner(self._slots)
        # Models in the middle of their episodes must not keep finished ones from being graded.
        self._programs = asyncio.Semaphore(max(1, max_workers // 2))
        self._sweeper = asyncio.create_task(self._sweep())

    async def grade(self, key: str, source: str, items: Sequence[str], *, seconds: float, max_losses: int) -> list[Verdict]:
        lane = self._lanes.get((key, source))
        if lane is None:
            lane = self._lanes[key, source] = Lane(source, self._slots)
        return await lane.grade(items, seconds=seconds, max_losses=max_losses)

    async def run_code(self, code: str, tests: Sequence[CodeTest], *, seconds: float) -> list[TestOutcome]:
        return await self._code.run(code, tests, seconds=seconds)

    async def run_program(self, code: str, *, seconds: float) -> Ran:
        async with self._programs:
            return await self._code.program(code, seconds=seconds)

    def output(self, key: str, source: str) -> Output:
        lane = self._lanes.get((key, source))
        return lane.output() if lane else Output()

    async def close(self) -> None:
        self._sweeper.cancel()
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()), return_exceptions=True)
        await self._nursery.close()

    async def _evict(self) -> None:
        """End the worker of the lane that has been idle longest, if any is idle."""
        idle = [lane for lane in self._lanes.values() if lane.has_worker and not lane.busy]
        if idle:
            await min(idle, key=lambda lane: lane.used_at).drop_worker()

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for name, lane in list(self._lanes.items()):
                if not lane.busy and loop.time() - lane.used_at > _IDLE_SECONDS:
                    del self._lanes[name]
                    await lane.close()
