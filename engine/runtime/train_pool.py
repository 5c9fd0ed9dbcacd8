"""The manager's ``TrainPort`` where more than one training slot is: groups of ranks beside one another, each with a base model of its own.

A step is a pure function of its request, so which group takes it changes nothing. How many trainings are given out at once is the
scheduler's decision (``policy.train_slots``); here each goes to the group that has the least to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.ports import Snapshot, TrainRequest, TrainResult
from engine.runtime.train_group import TrainGroup
from engine.spec import JobSpec


class TrainPool:
    def __init__(self, groups: Sequence[TrainGroup]):
        self._groups = groups

    async def close(self) -> None:
        await asyncio.gather(*(group.close() for group in self._groups))

    async def prepare(self, request: TrainRequest) -> None:
        """Only where there is no choice: which of several will take it is not known before its turn."""
        if len(self._groups) == 1:
            await self._groups[0].prepare(request)

    async def fresh(self, job: str, spec: JobSpec) -> Snapshot:
        return await self._idlest().fresh(job, spec)

    async def step(self, request: TrainRequest) -> TrainResult:
        return await self._idlest().step(request)

    def workers(self) -> list[dict[str, Any]]:
        return [worker for group in self._groups for worker in group.workers()]

    def _idlest(self) -> TrainGroup:
        return min(self._groups, key=lambda group: group.outstanding)
