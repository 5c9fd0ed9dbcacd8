"""The engine's actors: their names, who gets which cores or accelerators, creation and removal."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from engine.runtime import names
from engine.runtime.http_actor import HttpActor
from engine.runtime.manager_actor import ManagerActor
from engine.runtime.names import Factories
from engine.runtime.readiness import Health, StartFailed
from engine.runtime.rollout_actor import RolloutActor
from engine.runtime.train_actor import TrainActor
from engine.settings import EngineSettings

logger = logging.getLogger(__name__)


class Actors:
    """All restart without limit, and no call is repeated by Ray: what to do again is the manager's decision."""

    def __init__(self, settings: EngineSettings, factories: Factories):
        self._settings = settings
        self._factories = factories
        self._handles: dict[str, Any] = {}

    def create(self, sandbox: dict[str, Any]) -> None:
        """Start all of them at once; sampler and trainer load in parallel. ``sandbox``: see ``sandbox_check``."""
        settings = self._settings
        for replica in range(settings.rollout_replicas):
            self._create(names.rollout(replica), RolloutActor, settings, replica, self._factories.rollout, accelerators=self._share())
        for group in range(settings.train_groups):
            for rank in range(settings.train_ranks):
                name = names.train(group, rank)
                self._create(name, TrainActor, settings, rank, self._factories.train, name, accelerators=self._share())
        # Here, where the state folder is and the portal calls; whatever computes may lie on any node.
        here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
        self._create(names.MANAGER, ManagerActor, settings, sandbox, where=here)
        self._create(names.HTTP, HttpActor, settings, where=here)

    def _share(self) -> float:
        """Accelerators per process: a whole one, or a part where there are fewer than processes (sampler and trainer on one card)."""
        resource = self._settings.device_profile().ray_resource
        if resource is None:
            return 0.0
        present = ray.cluster_resources().get(resource, 0)
        wanted = self._settings.rollout_replicas + self._settings.train_groups * self._settings.train_ranks
        return 1.0 if present >= wanted else present / wanted

    def _create(self, name: str, kind: type, *args: Any, accelerators: float = 0.0, where: Any = "SPREAD") -> None:
        self._remove_old(name)
        actor = ray.remote(kind).options(
            name=name,
            namespace=names.NAMESPACE,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=10_000,
            enable_task_events=False,
            scheduling_strategy=where,
            **self._settings.device_profile().ray_options(accelerators),
        )
        self._handles[name] = actor.remote(*args)

    def _remove_old(self, name: str) -> None:
        """On a joined cluster an earlier launcher may have been killed; its actors are of no use."""
        try:
            ray.kill(names.find(name))
        except ValueError:
            return

    async def next_health(self, revision: int, *, wait_seconds: float) -> Health:
        """The manager's view of the engine once it has changed. A manager that is being restarted counts as a stage."""
        try:
            return await self._handles[names.MANAGER].next_health.remote(revision, wait_seconds)
        except RayActorError:
            return Health(ok=False, stage="restarting the manager…", revision=0)

    async def http_ready(self, deadline_seconds: float) -> None:
        """Raises ``StartFailed`` when the port cannot be opened."""
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._handles[names.HTTP].ready.remote()
        except (RayActorError, TimeoutError) as error:
            raise StartFailed(f"{self._settings.engine_url} cannot be served: {error}") from error

    async def until_gone(self) -> str:
        """The name of an actor that Ray will not start again; answers only when there is one."""
        waits = {asyncio.ensure_future(self._until_gone(name)) for name in self._handles}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return done.pop().result()

    async def _until_gone(self, name: str) -> str:
        while True:
            try:
                await self._handles[name].hold.remote()
            except ActorDiedError as error:
                return f"{name} is gone: {error}"
            except RayActorError:
                logger.warning("%s died; Ray restarts it", name)

    def kill(self) -> None:
        for handle in self._handles.values():
            ray.kill(handle)
