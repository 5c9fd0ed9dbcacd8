"""The engine's actors: their names, who gets which cores or accelerators, creation and removal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from engine.runtime import names, placement
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

    def __init__(self, settings: EngineSettings, factories: Factories, *, joined: bool):
        self._settings = settings
        self._factories = factories
        self._joined = joined
        self._handles: dict[str, Any] = {}
        self._places: placement.Places | None = None

    async def reserve(self, tag: str, tell: Callable[[str], None]) -> None:
        """The places of samplers and trainers on the cluster's nodes. Raises ``StartFailed`` when there is no room for them."""
        self._remove_old()
        self._places = placement.Places(placement.wishes(self._settings, share=self._share()), tag)
        await self._places.ready(self._settings.start_deadline_seconds, tell)

    def create(self, sandbox: dict[str, Any]) -> None:
        """Start all of them at once; sampler and trainer load in parallel. ``sandbox``: see ``sandbox_check``."""
        settings, places, share = self._settings, self._places, self._share()
        if places is None:
            raise RuntimeError("reserve comes first")
        for replica in range(settings.rollout_replicas):
            where = places.of(placement.SAMPLERS, replica)
            factory = self._factories.rollout
            self._create(names.rollout(replica), RolloutActor, settings, replica, factory, accelerators=share, where=where)
        for group in range(settings.train_groups):
            for rank in range(settings.train_ranks):
                name, where = names.train(group, rank), places.of(placement.trainers(group), rank)
                self._create(name, TrainActor, settings, rank, self._factories.train, name, accelerators=share, where=where)
        # Here, where the state folder is and the portal calls; whatever computes lies where it was placed.
        here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
        self._create(names.MANAGER, ManagerActor, settings, sandbox, where=here)
        self._create(names.HTTP, HttpActor, settings, where=here)

    def _share(self) -> float:
        """Accelerators per process, unless the settings say: a whole one each on a cluster, whose nodes may still be coming; on our own Ray
        a part where there are fewer than processes (sampler and trainer on one card)."""
        resource = self._settings.device_profile().ray_resource
        if resource is None:
            return 0.0
        if self._settings.accelerator_share is not None or self._joined:
            return self._settings.accelerator_share or 1.0
        present = ray.cluster_resources().get(resource, 0)
        wanted = self._settings.rollout_replicas + self._settings.train_groups * self._settings.train_ranks
        return 1.0 if present >= wanted else present / wanted

    def _create(self, name: str, kind: type, *args: Any, accelerators: float = 0.0, where: Any) -> None:
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

    def _remove_old(self) -> None:
        """On a joined cluster an earlier launcher may have been killed; its actors are of no use."""
        for found in list_named_actors(all_namespaces=True):
            if found["namespace"] == names.NAMESPACE and names.is_ours(found["name"]):
                with contextlib.suppress(ValueError):  # gone meanwhile
                    ray.kill(names.find(found["name"]))

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
        if self._places is not None:
            self._places.remove()
