"""Stand-ins for the rollout and train workers inside real Ray actors: instant, stateless, and able to misbehave on request."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from engine.ports import PortError, RolloutResult, TrainResult

logger = logging.getLogger(__name__)


class FakeRolloutWorker:
    """The job's name says what happens: ``slow…`` waits for an abort, ``refused…`` raises a PortError, ``bug…`` a ValueError,
    ``doomed…`` makes the sampler die."""

    @classmethod
    async def start(cls, settings: Any) -> FakeRolloutWorker:
        return cls()

    def __init__(self) -> None:
        self.died = asyncio.Event()
        self._aborts: dict[str, asyncio.Event] = {}

    async def rollout(self, request: Any) -> RolloutResult:
        job = request.adapter.job
        if job.startswith("refused"):
            raise PortError("no such adapter", attribution="user")
        if job.startswith("doomed"):
            self.died.set()
        if job.startswith("bug"):
            raise ValueError("a bug")
        if job.startswith(("slow", "doomed")):
            await self._aborts.setdefault(job, asyncio.Event()).wait()
            raise PortError("aborted")
        return RolloutResult(batch=b"".join(request.adapter_files.values()), summary={"pid": os.getpid()})

    async def evaluate(self, request: Any) -> dict[str, Any]:
        return {"version": request.adapter.version}

    async def prompt_tokens(self, chats: list[list[dict[str, str]]]) -> list[int]:
        return [len(chat) for chat in chats]

    async def abort(self, job: str) -> None:
        self._aborts.setdefault(job, asyncio.Event()).set()

    async def unload(self, job: str, *, keep_version: int | None = None) -> None:
        return None

    async def stats(self) -> dict[str, Any]:
        return {"decode_steps": 10, "kv_used": 0.5, "kv_tokens": {"ten_a": 7}, "pid": str(os.getpid())}


class FakeTrainWorker:
    """``die…`` jobs end the process of the highest rank in the middle of a step; the other ranks then wait for ever, as in a collective.

    ``torn…`` jobs fail on all other ranks, as a collective does that has lost a peer.
    """

    @classmethod
    def start(cls, settings: Any, *, rank: int, world_size: int, init_method: str) -> FakeTrainWorker:
        return cls(rank, world_size, init_method)

    def __init__(self, rank: int, world_size: int, init_method: str):
        self.rank, self.world_size, self.init_method = rank, world_size, init_method

    def fresh(self, job: str, spec: Any) -> dict[str, bytes]:
        logger.info("makes version 0")
        return {"trainer.json": f"{job} on {self.world_size} at {self.init_method}".encode()}

    def step(self, request: Any) -> TrainResult:
        logger.info("trains")
        if request.job.startswith("die"):
            if self.rank == self.world_size - 1:
                os._exit(1)
            _wait_for_ever()
        if request.job.startswith("torn") and self.rank < self.world_size - 1:
            raise RuntimeError("Connection reset by peer")
        return TrainResult(snapshot=request.snapshot, metrics={"pid": os.getpid()}, seconds=0.0)


def _wait_for_ever() -> None:
    reader, _ = os.pipe()
    os.read(reader, 1)
