"""A running engine under the bench's hand: jobs submitted at once and followed to their ends, under one scheduling policy after another."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import httpx

from engine.bench.activity import SamplerWatch, counter_files
from engine.bench.loads import BenchJob
from engine.bench.run import Run
from engine.client import EngineClient
from engine.core.policy import Policy, regime
from engine.follow import JobView
from engine.runtime.child import EngineChild
from engine.settings import EngineSettings
from engine.spec import Submission

# Whatever happens, no run is waited for longer than this, and its cancelled jobs not longer than that.
MOST_SECONDS = 3 * 3600.0
CANCEL_SECONDS = 300.0


class Session:
    """``policy`` is the engine's own, to be put back afterwards; ``slots``: the jobs it can hold at once."""

    def __init__(self, client: EngineClient, settings: EngineSettings, *, policy: dict[str, Any], slots: int):
        self.client = client
        self.settings = settings
        self.slots = slots
        self._policy = policy
        self._cursor: int | None = None

    async def set_regime(self, name: str, **changes: Any) -> Policy:
        """Every field as the regime has it, whatever was set before. The KV budget stays the engine's."""
        policy = regime(name, slots=self.slots, kv_budget_bytes=self._policy["kv_budget_bytes"], **changes)
        await self.set_policy(asdict(policy))
        return policy

    async def set_policy(self, fields: Mapping[str, Any]) -> None:
        await self.client.set_policy({name: value for name, value in fields.items() if name in self._policy})

    async def restore_policy(self) -> None:
        await self.set_policy(self._policy)

    async def play(
        self, jobs: list[BenchJob], *, regime: str, cut_seconds: float | None = None, on_event: Callable[[Run], None] = lambda run: None
    ) -> Run:
        """Submit ``jobs`` at once, each of a tenant of its own, and follow them to their ends.

        After ``cut_seconds`` the open ones are cancelled; the run says so. ``on_event`` is given the run as far as it is.
        """
        if self._cursor is None:
            self._cursor = await self.client.last_offset()
        status = await self.client.status()
        number = secrets.token_hex(3)
        names = [f"bench-{number}-{position}" for position in range(len(jobs))]
        views = {
            name: JobView(job=name, tenant=f"tenant-{position}", task=job.kind, steps=job.steps, cursor=self._cursor)
            for position, (name, job) in enumerate(zip(names, jobs, strict=True))
        }
        began, submitted, cut_at = time.time(), dict.fromkeys(names, 0.0), None
        facts = {"regime": regime, "views": views, "began": began, "submitted": submitted}
        with SamplerWatch(counter_files(self.settings)) as watch:
            for name, job in zip(names, jobs, strict=True):
                submitted[name] = time.time()
                at = datetime.fromtimestamp(submitted[name], UTC)
                await self.client.submit(name, Submission(tenant=views[name].tenant, submitted_at=at, spec=job.spec))
            try:
                async with asyncio.timeout(cut_seconds or MOST_SECONDS):
                    await self._follow(facts, on_event)
            except TimeoutError:
                cut_at = time.time()
                await self._cancel(views)
            except asyncio.CancelledError:  # the bench is told to end: leave the engine as it was
                with suppress(httpx.TransportError):
                    await self._cancel(views)
                raise
            sampling = watch.intervals
        after = await self.client.status()
        return Run(
            **facts,
            sampling=sampling,
            cut_at=cut_at,
            one_at_a_time=status["policy"]["max_active"] == 1,
            sampler_before=status["sampler"],
            sampler_after=after["sampler"],
        )

    async def forget(self, run: Run) -> None:
        """Remove the files of the run's jobs."""
        for name in run.views:
            await self.client.delete(name)

    async def _follow(self, facts: dict[str, Any], on_event: Callable[[Run], None]) -> None:
        views: dict[str, JobView] = facts["views"]
        async for event in self.client.follow(views, after=self._cursor):
            self._cursor = event["offset"]
            views[event["job"]].take(event)
            on_event(Run(**facts))

    async def _cancel(self, views: dict[str, JobView]) -> None:
        """End the open jobs, and wait for their ends: the next run shall begin on an idle engine. Their last steps count no more."""
        open_jobs = [name for name, view in views.items() if not view.ending]
        for name in open_jobs:
            with suppress_ended():
                await self.client.cancel(name)
        async with asyncio.timeout(CANCEL_SECONDS):
            async for event in self.client.follow(open_jobs, after=self._cursor):
                self._cursor = event["offset"]
                if event["kind"] == "ended":
                    views[event["job"]].take(event)


@contextmanager
def suppress_ended() -> Iterator[None]:
    """The engine refuses to cancel a job that has ended meanwhile."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.CONFLICT:
            raise


@asynccontextmanager
async def session(settings: EngineSettings, *, on_stage: Callable[[str], None] = lambda stage: None) -> AsyncIterator[Session]:
    """The engine at MARLAAS_ENGINE_URL if one is up, else one of our own, which ends with us. Its policy is put back at the end."""
    settings.make_dirs()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(EngineClient(settings.engine_url, settings.secret()))
        if not await client.healthy():
            await stack.enter_async_context(EngineChild(settings, on_stage=on_stage))
        status, model = await client.status(), await client.model()
        found = Session(client, settings, policy=status["policy"], slots=model["job_slots"])
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
        try:
            yield found
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            with suppress(httpx.TransportError):  # an engine that is gone has no policy
                await found.restore_policy()
