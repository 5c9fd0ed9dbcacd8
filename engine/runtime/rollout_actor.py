"""One rollout replica in a process of its own: a ``RolloutWorker`` (vLLM) behind Ray calls.

vLLM's engine core is a child of this process. When the core ends for whatever reason, this process ends too and Ray starts both anew:
a half-alive replica is worse than a dead one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from engine import logs
from engine.ports import EvalRequest, EvalResult, JudgeAnswer, JudgeQuestion, RolloutRequest, RolloutResult, Snapshot
from engine.runtime import process
from engine.runtime.fence import Fence
from engine.settings import EngineSettings

logger = logging.getLogger(__name__)


class RolloutActor:
    def __init__(self, settings: EngineSettings, replica: int, factory: str):
        profile = settings.device_profile()
        os.environ.update(profile.vllm_env)
        threads = max(1, len(settings.rollout_core_ids))
        # On the engine core's own cores: wherever there is room, it ran as fast alone but slowed the trainer beside it (14 to 17 thousand
        # steps per hour with tools). Before it in line: side by side, each batch waited a quarter of a second to be handed on.
        process.enter(f"rollout-{replica}", settings, cores=settings.rollout_core_ids, threads=threads, niceness=process.HANDS_ON)
        self._settings = settings
        self._fence = Fence()
        self._starting = asyncio.get_running_loop().create_task(self._start(factory))

    async def _start(self, factory: str) -> Any:
        worker_class = await asyncio.to_thread(process.load, factory)
        worker = await worker_class.start(self._settings)
        engine_processes = process.children(named="VLLM")
        process.watch(engine_processes, lambda pid: process.exit_now(f"vLLM's process {pid} ended"))
        self._watching = asyncio.ensure_future(_exit_when(worker.died))
        process.settle()
        logger.info("sampler ready; engine processes %s", engine_processes)
        return worker

    async def _worker(self) -> Any:
        return await asyncio.shield(self._starting)

    async def claim(self, epoch: int) -> int:
        """Answers once the sampler can work. From here on only ``epoch`` is served; generation for older managers is aborted."""
        self._fence.claim(epoch)
        await self._worker()
        return os.getpid()

    async def hold(self) -> None:
        """Never answers: the caller learns of this process's end the moment it happens."""
        await asyncio.Event().wait()

    async def rollout(self, epoch: int, request: RolloutRequest) -> RolloutResult:
        with logs.about(job=request.adapter.job, tenant=request.adapter.tenant):
            return await self._fence.run(epoch, self._call("rollout", request))

    async def evaluate(self, epoch: int, request: EvalRequest) -> EvalResult:
        with logs.about(job=request.adapter.job, tenant=request.adapter.tenant):
            return await self._fence.run(epoch, self._call("evaluate", request))

    async def judge(self, question: JudgeQuestion) -> JudgeAnswer:
        return await self._call("judge", question)

    async def prompt_tokens(self, chats: list[list[dict[str, str]]]) -> list[int]:
        return await self._call("prompt_tokens", chats)

    async def chat_open(self, chat: str, order: dict[str, Any], version: int | None, files: Snapshot | None) -> bool:
        return await self._call("chat_open", chat, order, version, files)

    async def chat_read(self, chat: str) -> dict[str, Any]:
        return await self._call("chat_read", chat)

    async def chat_close(self, chat: str) -> None:
        await self._call("chat_close", chat)

    async def abort(self, epoch: int, job: str) -> None:
        self._fence.claim(epoch)
        if self._starting.done():  # else nothing is there yet to abort
            await self._call("abort", job)

    async def unload(self, epoch: int, job: str, keep_version: int | None) -> None:
        self._fence.claim(epoch)
        if self._starting.done():
            await self._call("unload", job, keep_version=keep_version)

    async def stats(self) -> dict[str, Any]:
        return await self._call("stats")

    async def _call(self, method: str, *args: Any, **named: Any) -> Any:
        worker = await self._worker()
        return await getattr(worker, method)(*args, **named)


async def _exit_when(died: asyncio.Event) -> None:
    await died.wait()
    process.exit_now("the sampler is beyond help")
