"""How the bench drives an engine: against one whose events are written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict, replace
from typing import Any

import httpx
import pytest

from engine.bench.loads import AGENTIC, job_of
from engine.bench.session import Session
from engine.blobs import BlobStore
from engine.core.policy import regime
from engine.settings import EngineSettings
from tests.engine.bench.runs import step


class FakeClient:
    """Jobs whose position is in ``stuck`` never end by themselves; the others make one step and succeed. ``refused``: ended meanwhile."""

    def __init__(self, *, stuck: Iterable[int] = (), refused: Iterable[int] = ()):
        self.policy = asdict(regime("marlaas", slots=4, kv_budget_bytes=100))
        self.stuck, self.refused = set(stuck), set(refused)
        self.events: list[dict[str, Any]] = []
        self.submitted: list[str] = []
        self.cancelled: list[str] = []

    async def last_offset(self) -> int:
        return len(self.events)

    async def status(self) -> dict[str, Any]:
        return {"policy": self.policy, "sampler": {}}

    async def set_policy(self, changes: dict[str, Any]) -> None:
        self.policy = {**self.policy, **changes}

    async def submit(self, job: str, submission: Any) -> None:
        self.submitted.append(job)
        if int(job[-1]) not in self.stuck:
            self._say(job, "step", step(1, 0, 0, 1, 0, 1, 0))
            self._end(job, "succeeded")

    async def cancel(self, job: str) -> None:
        self.cancelled.append(job)
        self._end(job, "succeeded" if int(job[-1]) in self.refused else "cancelled")
        if int(job[-1]) in self.refused:
            request = httpx.Request("POST", "http://engine/")
            raise httpx.HTTPStatusError("ended", request=request, response=httpx.Response(409, request=request))

    async def follow(self, jobs: Iterable[str], *, after: int) -> AsyncIterator[dict[str, Any]]:
        open_jobs = set(jobs)
        while open_jobs:
            for event in self.events[after:]:
                after = event["offset"]
                if event["job"] in open_jobs:
                    yield event
                    open_jobs -= {event["job"]} if event["kind"] == "ended" else set()
            await asyncio.sleep(0)

    def _end(self, job: str, state: str) -> None:
        self._say(job, "ended", {"state": state, "completion_seconds": 1.0})

    def _say(self, job: str, kind: str, data: dict[str, Any]) -> None:
        self.events.append({"job": job, "kind": kind, "data": data, "offset": len(self.events) + 1})


@pytest.fixture
def settings() -> EngineSettings:
    return EngineSettings()


@pytest.fixture
def jobs(tmp_path):
    return lambda count: [job_of(replace(AGENTIC, steps=1), BlobStore(tmp_path), number) for number in range(count)]


def session(client: FakeClient, settings: EngineSettings) -> Session:
    return Session(client, settings, policy=client.policy, slots=4)


async def test_jobs_are_followed_to_their_ends(settings, jobs):
    run = await session(FakeClient(), settings).play(jobs(2), regime="marlaas")

    assert (run.steps, run.succeeded, run.cut_at, run.sampling) == (2, True, None, None)


async def test_what_a_run_has_not_done_in_time_is_cancelled(settings, jobs):
    client = FakeClient(stuck=[1])

    run = await session(client, settings).play(jobs(2), regime="marlaas", cut_seconds=0.01)

    assert [view.state for view in run.jobs] == ["succeeded", "cancelled"]
    assert run.cut_at is not None
    assert [name[-1] for name in client.cancelled] == ["1"]


async def test_a_job_that_ends_while_it_is_cancelled_is_no_trouble(settings, jobs):
    run = await session(FakeClient(stuck=[0], refused=[0]), settings).play(jobs(1), regime="marlaas", cut_seconds=0.01)

    assert run.jobs[0].state == "succeeded"


async def test_a_bench_that_is_told_to_end_leaves_no_job_behind(settings, jobs):
    client = FakeClient(stuck=[0])
    playing = asyncio.create_task(session(client, settings).play(jobs(1), regime="marlaas"))
    while not client.submitted:
        await asyncio.sleep(0)
    playing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await playing
    assert client.cancelled == client.submitted


async def test_each_run_sees_its_own_events_only(settings, jobs):
    engine = session(FakeClient(), settings)

    runs = [await engine.play(jobs(1), regime="marlaas") for _ in range(2)]

    assert [run.steps for run in runs] == [1, 1]


async def test_a_regime_replaces_every_field_of_the_one_before_and_keeps_the_budget(settings, jobs):
    client = FakeClient()
    engine = session(client, settings)
    own = client.policy

    await engine.set_regime("no-async-no-multi-lora")
    await engine.set_regime("single-disaggregated")

    assert (client.policy["barrier"], client.policy["max_rollouts"], client.policy["max_active"]) == (False, None, 1)
    assert client.policy["kv_budget_bytes"] == 100
    assert (await engine.play(jobs(1), regime="single-disaggregated")).one_at_a_time
    await engine.restore_policy()
    assert client.policy == own
