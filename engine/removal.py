"""Takes away what ended jobs have left on the disk. Each removal is journaled first; one whose manager died, the next one ends."""

from __future__ import annotations

import asyncio
from typing import Any

from engine.adapters import SamplerAdapters
from engine.driver import Driver
from engine.errors import Conflict, NotFound
from engine.history import JobHistory
from engine.store import Store


class Removal:
    """What was removed before is no error. Raises ``Conflict`` for a job that has not ended."""

    def __init__(self, driver: Driver, *, store: Store, adapters: SamplerAdapters):
        self._driver = driver
        self._store = store
        self._adapters = adapters

    async def job(self, job: JobHistory) -> dict[str, str]:
        """Its versions and batches; its history stays."""
        _must_have_ended(job, "cancel it first")
        if not job.deleted:
            await self._driver.say(job.job, "deleted", {})
        await asyncio.to_thread(self._store.delete, job.job)
        await self._adapters.drop(job.job)
        return {"job": job.job}

    async def completions(self, job: JobHistory) -> dict[str, str]:
        """What it sampled, in its steps and evaluations; versions and history stay."""
        _must_have_ended(job, "cancel it first")
        if not job.deleted:
            if not job.completions_deleted:
                await self._driver.say(job.job, "completions_deleted", {})
            await asyncio.to_thread(self._store.delete_completions, job.job)
        return {"job": job.job}

    async def version(self, job: JobHistory, version: int) -> dict[str, Any]:
        """One version; its history and the other versions stay.

        The latest one goes with the job only: it is what the job has come to. Raises ``NotFound``, too.
        """
        if job.deleted or not 0 <= version <= job.version:
            raise NotFound(f"{job.job} has no version {version}", code="version_not_found", param="version")
        _must_have_ended(job, "it may still need its versions")
        if version == job.version:
            raise Conflict(f"version {version} is the latest; delete the whole job's instead", code="version_latest", param="version")
        if version not in job.deleted_versions:
            await self._driver.say(job.job, "version_deleted", {"version": version})
        await asyncio.to_thread(self._store.drop_versions, job.job, [version])
        return {"job": job.job, "version": version}

    def finish(self, job: JobHistory) -> None:
        """What was journaled as removed may still be there. Blocks on the disk."""
        if job.deleted:
            self._store.delete(job.job)
            return
        if job.completions_deleted:
            self._store.delete_completions(job.job)
        if job.deleted_versions:
            self._store.drop_versions(job.job, sorted(job.deleted_versions))


def _must_have_ended(job: JobHistory, otherwise: str) -> None:
    if job.ended is None:
        raise Conflict(f"job {job.job} has not ended; {otherwise}", code="job_open", param="job")
