"""The manager in a process of its own: the ports made of actors, the ``Manager`` behind them, and its restart when it is of no more use.

Ray starts this process anew without limit. ``__init__`` begins the restore at once; whoever calls meanwhile waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from engine import epoch, logs
from engine.blobs import BlobStore
from engine.clock import SystemClock
from engine.core.policy import shipped
from engine.grader_spec import BASE_JUDGE
from engine.manager import Manager
from engine.models import registry
from engine.runtime import names, process, rollout_pool, train_group
from engine.runtime.readiness import Health, Readiness
from engine.runtime.rollout_pool import RolloutPool
from engine.runtime.train_group import TrainGroup
from engine.runtime.train_pool import TrainPool
from engine.settings import EngineSettings

logger = logging.getLogger(__name__)

PART = "manager"
RESTORING = "reading the journal…"


class ManagerActor:
    def __init__(self, settings: EngineSettings, sandbox: dict[str, Any]):
        process.enter("manager", settings)
        self._settings, self._sandbox = settings, sandbox
        trainers = dict.fromkeys(trainer_parts(settings), train_group.LOADING)
        self._readiness = Readiness({PART: RESTORING, rollout_pool.PART: rollout_pool.LOADING, **trainers})
        self._starting = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> Manager:
        try:
            manager = await self._make()
            await manager.start()
        except Exception as error:
            logger.exception("the manager cannot start")
            self._readiness.set(PART, RESTORING, failure=f"the manager cannot start: {type(error).__name__}: {error}")
            raise
        manager.failed.add_done_callback(lambda failed: process.exit_now(f"manager failed: {failed.result()!r}"))
        self._readiness.set(PART, None)
        process.settle()
        return manager

    async def _make(self) -> Manager:
        settings = self._settings
        claimed = await asyncio.to_thread(epoch.claim, settings.engine_dir)
        files = await asyncio.to_thread(registry.resolve, settings.model, settings.models_dir)
        deadlines = {
            "epoch": claimed.number,
            "call_deadline_seconds": settings.call_deadline_seconds,
            "start_deadline_seconds": settings.start_deadline_seconds,
        }
        samplers = [names.find(names.rollout(i)) for i in range(settings.rollout_replicas)]
        trainers = [
            TrainGroup(self._ranks_of(group), self._readiness, part=part, **deadlines) for group, part in enumerate(trainer_parts(settings))
        ]
        return Manager(
            root=settings.engine_dir,
            blobs=BlobStore(settings.blobs_dir),
            model=model_info(settings, files, sandbox=self._sandbox["tier"]),
            tokenizer=files.path / "tokenizer.json",
            policy=shipped(settings.regime, slots=settings.job_slots, kv_budget_bytes=settings.kv_bytes, train_slots=settings.train_groups),
            rollout=RolloutPool(samplers, self._readiness, **deadlines),
            train=TrainPool(trainers),
            clock=SystemClock(),
            epoch=claimed,
            sandbox=self._sandbox,
        )

    def _ranks_of(self, group: int) -> list[Any]:
        return [names.find(names.train(group, rank)) for rank in range(self._settings.train_ranks)]

    async def call(self, method: str, about: dict[str, str], *args: Any, **named: Any) -> Any:
        """One of ``names.MANAGER_METHODS``; ``about``: see ``logs``. Raises ``engine.errors.EngineError`` for refusals."""
        if method not in names.MANAGER_METHODS:
            raise AttributeError(f"the manager offers no {method}")
        manager = await asyncio.shield(self._starting)
        with logs.about(**about):
            return await getattr(manager, method)(*args, **named)

    async def hold(self) -> None:
        """Never answers: the caller learns of this process's end the moment it happens."""
        await asyncio.Event().wait()

    async def health(self) -> dict[str, Any]:
        """``stopped``: {kind of part: since when} of which none serves, as ``sampler``: the others go on meanwhile."""
        health, walls = self._readiness.health(), {"sandbox": self._sandbox["tier"]}
        if not health.ok:
            stopped = {kind: since.isoformat() for kind, since in self._readiness.stopped().items()}
            return {"ok": False, "stage": health.failure or health.stage, "stopped": stopped, **walls}
        return {**await (await asyncio.shield(self._starting)).health(), **walls}

    async def next_health(self, revision: int, wait_seconds: float) -> Health:
        """See ``Readiness.next``."""
        return await self._readiness.next(revision, wait_seconds=wait_seconds)


def trainer_parts(settings: EngineSettings) -> list[str]:
    """The names of the training groups among the engine's parts."""
    return [train_group.PART if group == 0 else f"{train_group.PART} {group + 1}" for group in range(settings.train_groups)]


def model_info(settings: EngineSettings, files: registry.BaseModelFiles, *, sandbox: str) -> Any:
    info = registry.model_info(
        files,
        dtype=settings.device_profile().dtype,
        kv_budget_bytes=settings.kv_bytes,
        job_slots=settings.job_slots,
        max_rank=settings.max_rank,
        max_context_tokens=settings.max_context_tokens,
    )
    offered = {
        "reward_sandbox": sandbox,
        "search_endpoints": tuple(sorted(settings.search_endpoints)),
        "judges": tuple(sorted({*settings.judges, BASE_JUDGE})),
    }
    return info.model_copy(update=offered)
