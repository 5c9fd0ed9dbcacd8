"""One rank of the trainer in a process of its own: a ``TrainWorker`` behind Ray calls.

Torch works in one thread, so the event loop stays free to answer; calls are served in the order in which they come, which keeps all
ranks of a group in the same order of collectives.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from engine import device, logs
from engine.ports import PortError, Snapshot, TrainRequest, TrainResult
from engine.runtime import process
from engine.runtime.fence import Fence
from engine.settings import EngineSettings
from engine.spec import JobSpec

logger = logging.getLogger(__name__)

KEPT_AHEAD = 2  # requests


class TrainActor:
    def __init__(self, settings: EngineSettings, rank: int, factory: str, name: str):
        threads = max(1, len(settings.train_core_ids))
        process.enter(name, settings, cores=settings.train_core_ids, threads=threads, niceness=device.CALCULATES)
        self._settings = settings
        self._rank = rank
        self._fence = Fence()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        self._worker: Any = None
        self._generation = 0
        self._prepared: dict[tuple[str, int, int], TrainRequest] = {}  # in the order of their coming
        # Importing torch takes seconds: begin before the group is formed.
        self._worker_class = self._in_thread(process.load, factory)

    def _in_thread(self, function: Any, *args: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._thread, copy_context().run, function, *args)

    async def claim(self, epoch: int) -> tuple[int, bool]:
        """Only ``epoch`` is served from here on. Returns (the group generation this rank belongs to or 0, whether it can train)."""
        self._fence.claim(epoch)
        return self._generation, self._worker is not None

    async def rendezvous(self) -> str:
        """A free ``tcp://host:port`` on this node, for rank 0 to gather the group at."""
        with socket.socket() as probe:
            probe.bind((_node_ip(), 0))
            host, port = probe.getsockname()
        return f"tcp://{host}:{port}"

    async def form(self, epoch: int, generation: int, init_method: str, world_size: int) -> None:
        """Join the process group and load the base model. A rank that was part of a group cannot join another: it must be restarted."""
        self._fence.claim(epoch)
        if self._generation:
            raise PortError(f"rank {self._rank} already belongs to group {self._generation}")
        self._generation = generation
        worker_class = await self._worker_class
        self._worker = await self._in_thread(_start_worker, worker_class, self._settings, self._rank, world_size, init_method)
        process.settle()
        logger.info("rank %d of %d ready in group %d", self._rank, world_size, generation)

    async def hold(self) -> None:
        """Never answers: the caller learns of this process's end the moment it happens."""
        await asyncio.Event().wait()

    async def fresh(self, epoch: int, about: dict[str, str], job: str, spec: JobSpec) -> Snapshot | None:
        """``about``: see ``logs``."""
        with logs.about(**{**about, "job": job}):
            return await self._run(epoch, "fresh", job, spec)

    async def step(self, epoch: int, about: dict[str, str], request: TrainRequest) -> TrainResult | None:
        """``about``: see ``logs``; what the step makes depends on ``request`` alone."""
        with logs.about(**{**about, "job": request.job}):
            return await self._run(epoch, "step", request)

    async def prepare(self, epoch: int, request: TrainRequest) -> None:
        """Keep ``request`` for ``step_prepared``, in the place of the last but one: Ray may let this overtake the step before it."""
        self._fence.claim(epoch)
        self._prepared[request.key] = request
        while len(self._prepared) > KEPT_AHEAD:
            del self._prepared[next(iter(self._prepared))]

    async def step_prepared(self, epoch: int, about: dict[str, str], key: tuple[str, int, int]) -> TrainResult | None:
        """``step`` of the request with this ``key``. Raises ``PortError`` when it is not there."""
        request = self._prepared.pop(key, None)
        if request is None:
            raise PortError(f"rank {self._rank} was given no request for {key}")
        return await self.step(epoch, about, request)

    async def _run(self, epoch: int, method: str, *args: Any) -> Any:
        self._fence.claim(epoch)
        if self._worker is None:
            raise PortError(f"rank {self._rank} is not part of a group yet")
        result = await self._in_thread(getattr(self._worker, method), *args)
        return result if self._rank == 0 else None

    async def process_id(self) -> int:
        return os.getpid()


def _start_worker(worker_class: Any, settings: EngineSettings, rank: int, world_size: int, init_method: str) -> Any:
    return worker_class.start(settings, rank=rank, world_size=world_size, init_method=init_method)


def _node_ip() -> str:
    import ray

    return ray.util.get_node_ip_address()
