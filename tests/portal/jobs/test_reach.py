"""While an engine cannot be reached, pages and API say so of its open jobs; when it is back, they stop by themselves."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal import gateway
from portal.gateway import EngineDown, EngineSlow
from portal.jobs import delivery, ingest, reach
from portal.jobs.ingest import Ingester
from portal.jobs.models import EngineCursor, EngineModel, Job, State
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World

SECOND = timedelta(seconds=1)


class Outage:
    """An ingester whose pulls end as ``script`` says, on a clock that they and its pauses move on: an error, at once; (seconds, an error),
    after those; None, an answer.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *script: Exception | tuple[float, Exception] | None):
        self.now, self.script = NOW, list(script)
        self.told: list[tuple[datetime, datetime | None]] = []  # (when, since when the engine is away)
        monkeypatch.setattr(ingest.asyncio, "sleep", self._sleep)
        monkeypatch.setattr(ingest, "close_old_connections", lambda: None)
        self.ingester = Ingester(gateway=None, announce=None, announce_reach=self._announce, clock=lambda: self.now)
        monkeypatch.setattr(self.ingester, "pull", self._pull)

    def run(self) -> list[tuple[float, float | None]]:
        """(seconds, away since which second) of each announcement."""
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(self.ingester.run())
        return [((at - NOW).total_seconds(), since and (since - NOW).total_seconds()) for at, since in self.told]

    async def _sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def _announce(self) -> None:
        self.told.append((self.now, reach._gone().get("")))

    async def _pull(self) -> int:
        if not self.script:
            raise asyncio.CancelledError
        if (failure := self.script.pop(0)) is None:
            return 0
        if isinstance(failure, tuple):
            await self._sleep(failure[0])
            failure = failure[1]
        raise failure


@pytest.fixture
def job(world: World) -> Job:
    job = world.job()
    Job.objects.filter(pk=job.pk).update(state=State.RUNNING)
    job.refresh_from_db()
    return job


def test_an_engine_that_refuses_connections_is_away_since_the_last_answer(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    outage = Outage(monkeypatch, None, *6 * [EngineDown("refused")], None, None)
    assert outage.run() == [(3.7, 0.0), (13.7, None)]


def test_a_door_that_restarts_is_not_away(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Outage(monkeypatch, EngineDown("refused"), EngineDown("refused"), None, EngineDown("refused"), None).run() == []


def test_an_engine_that_hangs_is_away_since_its_last_answer_not_since_the_wait_for_the_next_was_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hangs = (30.0, EngineSlow("no answer in 30 s"))
    assert Outage(monkeypatch, None, hangs, hangs, None).run() == [(30.0, 0.0), (60.7, None)]


def test_an_engine_that_dies_under_a_call_is_away_since_its_last_answer_and_told_of_when_it_stays_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dies = (15.0, EngineDown("closed the connection"))
    assert Outage(monkeypatch, None, dies, None).run() == []
    assert Outage(monkeypatch, None, dies, *4 * [EngineDown("refused")]).run() == [(18.7, 0.0)]


def test_a_new_ingester_knows_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    reach.lost("", NOW - 60 * SECOND)
    assert Outage(monkeypatch, EngineSlow("no answer in 30 s")).run() == [(0.0, -60.0)]


def test_an_ingester_that_died_before_is_put_right_by_the_next_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    reach.lost("", NOW - 60 * SECOND)
    assert Outage(monkeypatch, None).run() == [(0.0, None)]


def test_what_nobody_repeats_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[float] = []
    monkeypatch.setattr(reach, "cache", SimpleNamespace(get=lambda key: None, set=lambda key, value, seconds: kept.append(seconds)))
    reach.lost("", NOW)
    assert kept == [90]


def test_lists_say_it_of_open_jobs_and_foretell_nothing(world: World, job: Job) -> None:
    over = world.job(name="over")
    Job.objects.filter(pk=over.pk).update(state=State.SUCCEEDED)
    reach.lost("", NOW)
    for address in ("/jobs/", "/"):
        page = world.client(world.alice).get(address)
        assert page.content.decode().count("engine away<") == 1
        assert "The engine has not answered since" in page.content.decode()
    reach.found("")
    for address in ("/jobs/", "/"):
        fragment = world.client(world.alice).get(address, headers={"HX-Request": "true"}).content.decode()
        assert "<html" not in fragment and job.name in fragment and "engine away" not in fragment


def test_lists_say_nothing_where_every_job_has_ended(world: World, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(state=State.FAILED)
    reach.lost("", NOW)
    assert "has not answered" not in world.client(world.alice).get("/jobs/").content.decode()


def test_the_run_page_starts_from_it(world: World, job: Job) -> None:
    assert world.client(world.alice).get(f"/jobs/{job.public_id}/").context["run"]["engine_away_since"] is None
    reach.lost("", NOW)
    assert world.client(world.alice).get(f"/jobs/{job.public_id}/").context["run"]["engine_away_since"] == NOW.isoformat()


def test_the_api_tells_programs_without_a_look_for_each_job(world: World, job: Job) -> None:
    world.job()
    api = world.api(world.alice)
    assert {found["engine_away_since"] for found in api.get("/api/v1/jobs/").json()["results"]} == {None}
    reach.lost("", NOW)
    assert {found["engine_away_since"] for found in api.get("/api/v1/jobs/").json()["results"]} == {"2026-01-01T12:00:00Z"}
    assert api.get(f"/api/v1/jobs/{job.public_id}/").json()["engine_away_since"] == "2026-01-01T12:00:00Z"


def test_only_the_jobs_of_the_engine_that_is_away_stand_still(world: World, settings: Any) -> None:
    settings.ENGINES = {"qwen": "http://qwen"}
    gateway.forget()
    EngineCursor.objects.create(engine="here", name="", current=True)
    EngineCursor.objects.create(engine="there", name="qwen", current=True)
    jobs = [world.job() for _ in range(4)]
    for job, journal in zip(jobs, ("here", "there", "there", "there"), strict=True):
        Job.objects.filter(pk=job.pk).update(engine=journal, state=State.RUNNING)
        job.refresh_from_db()
    reach.lost("qwen", NOW)
    with CaptureQueriesContext(connection) as queries:
        assert reach.away(jobs) == {job.pk: NOW for job in jobs[1:]}
    assert len(queries) == 1


def test_a_job_that_no_engine_has_taken_waits_for_the_one_it_was_sent_to(world: World, settings: Any) -> None:
    settings.ENGINES = {"qwen": "http://qwen"}
    gateway.forget()
    job = world.job()
    reach.lost("qwen", NOW)
    assert reach.since(job) is None
    delivery.JobSubmission.objects.filter(job=job).update(sent_to="qwen")
    assert reach.since(job) == NOW


def test_a_cache_that_does_not_answer_costs_no_page(world: World, job: Job, settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}}
    assert reach.since(job) is None
    assert reach.lost("", NOW) == NOW
    reach.found("")


MEANWHILE = {
    "/jobs/new/": "it waits, and begins by itself",
    "/playground/": "Answers come when it is back",
    "/playground/{job}/": "Answers come when it is back",
    "/rewards/{reward}/lab/": "Trials and probes run on it",
    "/rewards/drafts/{sheet}/": "Trials and probes run on it",
    "/rewards/{reward}/probe/": "Trials and probes run on it",
}


@pytest.mark.parametrize("address", MEANWHILE)
def test_pages_that_need_the_engine_say_up_front_what_can_be_done_without_it(world: World, job: Job, address: str) -> None:
    client, names = world.client(world.alice), {"job": job.public_id, "reward": job.reward.public_id, "sheet": world.sheet().public_id}
    page = client.get(address.format(**names)).content.decode()
    assert "has not answered since" not in page
    reach.lost("", NOW)
    page = client.get(address.format(**names)).content.decode()
    assert NOW.isoformat() in page and MEANWHILE[address] in page


@pytest.mark.parametrize("path", ["evaluation/latest/", "rollouts/", "rollouts/0/0/0/", "rollouts/rows/0/"])
def test_pages_of_what_the_engine_keeps_say_since_when_also_of_a_job_that_is_over(
    world: World, engine: FakeEngine, job: Job, path: str
) -> None:
    Job.objects.filter(pk=job.pk).update(state=State.SUCCEEDED)
    engine.down = True
    reach.lost("", NOW)
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/{path}")
    assert (answer.status_code, NOW.isoformat() in answer.content.decode()) == (503, True)
    assert "the run's page" in answer.content.decode().replace("&#x27;", "'")


def test_where_one_of_several_engines_is_away_its_models_are_named(settings: Any, db: None) -> None:
    settings.ENGINES = {"qwen": "http://qwen"}
    gateway.forget()
    EngineModel.objects.create(name="qwen-7b", info={}, served_by="qwen", updated_at=NOW)
    EngineModel.objects.create(name="tiny-math", info={}, served_by="", updated_at=NOW)
    assert reach.of_models(["qwen-7b", "tiny-math"]) is None
    reach.lost("qwen", NOW)
    assert reach.of_models(["qwen-7b", "tiny-math"]) == reach.Away(since=NOW, of="qwen-7b")
    assert reach.of_models(["qwen-7b"]) == reach.Away(since=NOW, of="")
    assert reach.of_models(["tiny-math"]) is None
