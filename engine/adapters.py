"""Which adapters the sampler holds for each job, and when they go: old versions after a commit, all of them at the end.

An adapter that an evaluation pins stays until that evaluation has ended. An unload that was begun for one version must not hit the next
one's adapter, so unloads of a job follow one another, and a rollout first lets them finish.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from functools import partial

from engine.driver import Driver
from engine.history import JobHistory
from engine.ports import AdapterRef, RolloutPort

logger = logging.getLogger(__name__)


class SamplerAdapters:
    """Calls here cost room when they fail, not correctness: failures are logged, and nothing raises."""

    def __init__(self, driver: Driver, rollout: RolloutPort, *, control_seconds: float):
        self._driver = driver
        self._rollout = rollout
        self._control_seconds = control_seconds
        self._loads: dict[str, dict[int, AdapterRef]] = {}  # by job and version: what the sampler was told to load
        self._ordered: dict[str, dict[int, set[int]]] = {}  # by job and version: every load id that the sampler may answer with
        self._pinned: dict[str, set[int]] = {}  # versions that an evaluation uses or is about to use

    def load(self, job: JobHistory, version: int, *, load_id: int) -> AdapterRef:
        """The one load of this version: the first caller's ``load_id`` names it, for the rollout and the evaluation alike."""
        fresh = AdapterRef(tenant=job.tenant, job=job.job, version=version, load_id=load_id)
        adapter = self._loads.setdefault(job.job, {}).setdefault(version, fresh)
        self._ordered.setdefault(job.job, {}).setdefault(version, set()).add(adapter.load_id)
        return adapter

    def ordered(self, job: str, version: int) -> frozenset[int]:
        """The ids of all loads of this version: the sampler may go on with an earlier one that it still holds."""
        return frozenset(self._ordered.get(job, {}).get(version, ()))

    def loaded(self) -> dict[str, list[int]]:
        """By job, the versions that the sampler was told to load and not to drop."""
        return {job: sorted(versions) for job, versions in self._loads.items() if versions}

    def doubt(self, job: str) -> None:
        """A rollout failed: unless an evaluation uses it, drop the adapter, so that the next attempt loads it anew under a fresh id."""
        if job not in self._pinned:
            self._driver.spawn(job, "tidy", partial(self._drop_all, job, before=self._driver.task(job, "tidy")))

    def forget(self, job: str, version: int) -> None:
        """Whether the sampler still holds this adapter is unknown: the next use loads it under a fresh id."""
        self._loads.get(job, {}).pop(version, None)

    def pin(self, job: str, version: int) -> None:
        """Keep the adapter of ``version`` until ``unpin``."""
        self._pinned.setdefault(job, set()).add(version)

    def unpin(self, job: str, version: int) -> None:
        self._pinned.get(job, set()).discard(version)
        if not self._pinned.get(job):
            self._pinned.pop(job, None)

    async def abort(self, job: str) -> None:
        """Stop generating for ``job``."""
        await self._control(self._rollout.abort(job), f"aborting {job}")

    def tidy(self, job: str) -> None:
        """In the background, drop every adapter of ``job`` that is no longer needed."""
        self._driver.spawn(job, "tidy", partial(self._tidy, job, before=self._driver.task(job, "tidy")))

    async def tidied(self, job: str) -> None:
        """Wait until no unload of ``job`` is under way."""
        if (tidying := self._driver.task(job, "tidy")) is not None:
            await asyncio.wait([tidying])

    async def close(self, job: str, *, after: Iterable[asyncio.Task[None]]) -> None:
        """The job is over: once its other tasks have ended, take all of its adapters from the sampler."""
        await asyncio.gather(*after, return_exceptions=True)
        self._pinned.pop(job, None)
        self._ordered.pop(job, None)
        await self._unload_all(job)

    async def drop(self, job: str) -> None:
        """The job is deleted: no adapter of it stays anywhere, a chat's neither."""
        await self._unload_all(job)

    async def clear(self, jobs: list[JobHistory], slots: int) -> None:
        """After a restart the sampler may still play attempts that nobody waits for: stop them, and drop all adapters.

        What it holds belongs to open jobs, or to one of the last ``slots`` that ended.
        """
        ended = sorted((job for job in jobs if job.ended_at is not None), key=lambda job: job.ended_at)[-slots:]
        opened = [job for job in jobs if job.ended is None]
        await asyncio.gather(*(self._clear(job.job) for job in [*ended, *opened]))

    async def _clear(self, job: str) -> None:
        await self.abort(job)
        await self._unload_all(job)

    async def _tidy(self, job: str, *, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        history = self._driver.history.jobs[job]
        needed = self._pinned.get(job, set()) | (set() if history.paused else {history.version})
        if history.ended is not None or len(needed) > 1:  # the end of the evaluation tidies again
            return
        keep = next(iter(needed), None)
        own = self._loads.get(job, {})
        self._loads[job] = {version: adapter for version, adapter in own.items() if version == keep}
        self._ordered[job] = {version: ids for version, ids in self._ordered.get(job, {}).items() if version == keep}
        await self._control(self._rollout.unload(job, keep_version=keep), f"unloading old adapters of {job}")

    async def _drop_all(self, job: str, *, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        await self._unload_all(job)

    async def _unload_all(self, job: str) -> None:
        self._loads.pop(job, None)
        await self._control(self._rollout.unload(job), f"unloading {job}")

    async def _control(self, answer: Awaitable[None], what: str) -> None:
        try:
            await self._driver.call(answer, seconds=self._control_seconds, what=what)
        except Exception:
            logger.exception("%s failed", what)
