"""While a part of an engine restarts and the engine answers, pages and API say so of the jobs whose turn it is there, and of no other."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal import gateway
from portal.gateway import AsyncGateway
from portal.jobs import reach, standstill
from portal.jobs.announce import announce_reach
from portal.jobs.models import EngineCursor, Job, JobEvent, State
from portal.jobs.parts import BadHealth, PartsWatch, parse
from tests.portal.fake_engine import FakeEngine
from tests.portal.jobs.test_consumers import announce, socket
from tests.portal.world import NOW, World

LOST = NOW - timedelta(minutes=3)


class Looks:
    """A watch driven look by look, and how often it told open pages to look again."""

    def __init__(self, engine: FakeEngine):
        self.engine, self.told = engine, 0
        self.watch = PartsWatch(gateway=None, announce_reach=self._announce)

    async def _announce(self) -> None:
        self.told += 1

    def look(self, times: int = 1) -> dict[str, datetime]:
        """What is known of the engine's parts afterwards."""

        async def run() -> None:
            self.watch.gateway = AsyncGateway("http://engine", self.engine.secret, self.engine.transport())
            for _ in range(times):
                await self.watch.look()

        asyncio.run(run())
        return {part: datetime.fromtimestamp(at, NOW.tzinfo) for part, at in reach._known(reach._parts_key).get("", {}).items()}


@pytest.fixture
def looks(engine: FakeEngine) -> Looks:
    return Looks(engine)


@pytest.fixture
def job(world: World) -> Job:
    return running(world.job(), "rollout_started")


def running(job: Job, *kinds: str, **data: Any) -> Job:
    """The job with these events, the last of them with ``data``."""
    told = [{}] * (len(kinds) - 1) + [data]
    rows = [
        JobEvent(tenant_id=job.tenant_id, job=job, seq=job.last_seq + number, kind=kind, at=NOW, data=more)
        for number, (kind, more) in enumerate(zip(kinds, told, strict=True), 1)
    ]
    JobEvent.objects.bulk_create(rows)
    Job.objects.filter(pk=job.pk).update(state=State.RUNNING, last_seq=job.last_seq + len(kinds))
    job.refresh_from_db()
    return job


def test_a_part_that_is_out_is_told_from_the_second_look_on_and_taken_back_with_the_first_that_finds_it(
    looks: Looks, engine: FakeEngine
) -> None:
    assert (looks.look(), looks.told) == ({}, 0)
    engine.stopped = {"sampler": LOST.isoformat()}
    assert (looks.look(), looks.told) == ({}, 0)
    assert (looks.look(), looks.told) == ({"sampler": LOST}, 1)
    assert (looks.look(), looks.told) == ({"sampler": LOST}, 1)
    engine.stopped = None
    assert (looks.look(), looks.told) == ({}, 2)


def test_one_sampler_of_several_that_is_out_is_no_stop(looks: Looks, engine: FakeEngine) -> None:
    engine.stage, engine.stopped = "loading the base model into the trainer…", {}
    assert (looks.look(3), looks.told) == ({}, 0)


def test_an_engine_that_is_silent_or_whose_manager_restarts_says_nothing_of_its_parts(looks: Looks, engine: FakeEngine) -> None:
    engine.stopped = {"sampler": LOST.isoformat()}
    looks.look(2)
    engine.down = True
    assert looks.look() == {"sampler": LOST}
    engine.down, engine.stopped, engine.stage = False, None, "restarting the manager…"
    assert looks.look() == {"sampler": LOST}


def test_a_manager_that_was_restarted_does_not_make_the_stop_younger(looks: Looks, engine: FakeEngine) -> None:
    engine.stopped = {"sampler": LOST.isoformat()}
    looks.look(2)
    engine.stopped = {"sampler": NOW.isoformat()}
    assert looks.look() == {"sampler": LOST}


def test_what_a_watch_that_died_has_told_is_taken_back_by_the_next(looks: Looks) -> None:
    reach.tell_parts("", {"sampler": LOST})
    assert looks.look() == {}


def test_a_manager_among_the_parts_is_the_silent_engine_s_affair() -> None:
    assert parse({"ok": False, "stopped": {"manager": LOST.isoformat()}}) == {}


@pytest.mark.parametrize("stopped", ["sampler", {"sampler": "soon"}, {"sampler": None}, {"sampler": "2026-01-01T12:00:00"}])
def test_an_answer_that_cannot_be_read_stops_no_watch(looks: Looks, engine: FakeEngine, stopped: Any) -> None:
    with pytest.raises(BadHealth):
        parse({"ok": False, "stopped": stopped})
    engine.stopped = stopped
    assert looks.look(2) == {}


WAITS = {
    "accepted": "trainer",
    "admitted": "sampler",
    "rollout_started": "sampler",
    "rollout_lost": "sampler",
    "rollout_ready": "trainer",
    "train_started": "trainer",
    "train_lost": "trainer",
    "step": "sampler",
    "resumed": "sampler",
}


@pytest.mark.parametrize("part", reach.PARTS)
@pytest.mark.parametrize("kind", WAITS)
def test_a_job_is_told_of_the_part_whose_turn_it_is(world: World, kind: str, part: str) -> None:
    job = running(world.job(), kind, "novelty")
    reach.tell_parts("", {part: LOST})
    assert standstill.of_job(job) == (standstill.Standstill(part=part, since=LOST) if WAITS[kind] == part else None)


@pytest.mark.parametrize(("code", "told"), [("slots", True), ("kv", True), ("tenant_cap", True), ("model", False), ("admission", False)])
def test_a_queue_stands_still_with_the_sampler_but_not_what_waits_for_something_else(world: World, code: str, told: bool) -> None:
    job = running(world.job(), "waiting", code=code)
    reach.tell_parts("", {"sampler": LOST})
    assert (standstill.of_job(job) is not None) is told


@pytest.mark.parametrize("state", [State.PAUSED, State.SUCCEEDED])
def test_a_job_that_does_nothing_is_told_nothing(world: World, job: Job, state: str) -> None:
    Job.objects.filter(pk=job.pk).update(state=state)
    job.refresh_from_db()
    reach.tell_parts("", {"sampler": LOST})
    assert standstill.of_job(job) is None


def test_a_job_that_the_engine_has_not_taken_is_told_nothing(world: World) -> None:
    reach.tell_parts("", {"sampler": LOST, "trainer": LOST})
    assert standstill.of_job(world.job()) is None


def test_lists_say_it_of_the_jobs_that_wait_and_foretell_nothing(world: World, job: Job) -> None:
    running(world.job(name="trains"), "train_started")
    reach.tell_parts("", {"sampler": LOST})
    for address in ("/jobs/", "/"):
        page = world.client(world.alice).get(address).content.decode()
        assert page.count("sampler restarting<") == 1
        assert "The sampler has been restarting since" in page and LOST.isoformat() in page
        assert "away" not in page.replace("engine-away", "")
    reach.tell_parts("", {})
    for address in ("/jobs/", "/"):
        fragment = world.client(world.alice).get(address, headers={"HX-Request": "true"}).content.decode()
        assert job.name in fragment and "restarting" not in fragment


def test_an_engine_that_is_away_is_all_that_is_said_of_it(world: World, job: Job) -> None:
    reach.tell_parts("", {"sampler": LOST})
    reach.lost("", NOW)
    page = world.client(world.alice).get("/jobs/").content.decode()
    assert "engine away<" in page and "restarting" not in page


def test_lists_say_nothing_where_no_job_waits_for_it(world: World, job: Job) -> None:
    reach.tell_parts("", {"trainer": LOST})
    assert "restarting" not in world.client(world.alice).get("/jobs/").content.decode()


def test_the_run_page_starts_from_it(world: World, job: Job) -> None:
    assert world.client(world.alice).get(f"/jobs/{job.public_id}/").context["run"]["engine_restarting"] is None
    reach.tell_parts("", {"sampler": LOST})
    run = world.client(world.alice).get(f"/jobs/{job.public_id}/").context["run"]
    assert run["engine_restarting"] == {"part": "sampler", "since": LOST.isoformat()}


def test_the_api_tells_programs_without_a_look_for_each_job(world: World, job: Job) -> None:
    api = world.api(world.alice)
    running(world.job(), "train_started")
    reach.tell_parts("", {"sampler": LOST})
    told = {"part": "sampler", "since": "2026-01-01T11:57:00Z"}
    with CaptureQueriesContext(connection) as two:
        found = api.get("/api/v1/jobs/").json()["results"]
    assert [one["engine_restarting"] for one in found] == [None, told]
    assert api.get(f"/api/v1/jobs/{job.public_id}/").json()["engine_restarting"] == told
    for _ in range(5):
        running(world.job(), "rollout_started")
    with CaptureQueriesContext(connection) as seven:
        api.get("/api/v1/jobs/")
    assert len(seven) == len(two)


def test_the_playground_says_that_nobody_can_sample_just_now(world: World, job: Job) -> None:
    for part, told in (("trainer", False), ("sampler", True)):
        reach.tell_parts("", {part: LOST})
        page = world.client(world.alice).get(f"/playground/{job.public_id}/").content.decode()
        assert ("The sampler has been restarting since" in page, LOST.isoformat() in page) == (told, told)
    reach.lost("", NOW)
    page = world.client(world.alice).get(f"/playground/{job.public_id}/").content.decode()
    assert "The engine has not answered since" in page and "restarting" not in page


def test_only_the_jobs_of_that_engine_wait(world: World, job: Job, settings: Any) -> None:
    settings.ENGINES = {"qwen": "http://qwen"}
    gateway.forget()
    EngineCursor.objects.create(engine="here", name="", current=True)
    EngineCursor.objects.create(engine="there", name="qwen", current=True)
    other = running(world.job(), "rollout_started")
    Job.objects.filter(pk=job.pk).update(engine="here")
    Job.objects.filter(pk=other.pk).update(engine="there")
    reach.tell_parts("qwen", {"sampler": LOST})
    assert [*standstill.of_jobs(Job.objects.all())] == [other.pk]


def test_what_nobody_repeats_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[float] = []

    class Cache:
        def get(self, key: str) -> None: ...

        def set(self, key: str, value: Any, seconds: float) -> None:
            kept.append(seconds)

    monkeypatch.setattr(reach, "cache", Cache())
    reach.tell_parts("", {"sampler": NOW})
    assert kept == [30]


def test_a_cache_that_does_not_answer_costs_no_page_and_no_watch(world: World, job: Job, settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}}
    reach.tell_parts("", {"sampler": NOW})
    assert standstill.of_job(job) is None


@pytest.mark.django_db(transaction=True)
async def test_an_open_page_hears_of_the_part_that_its_job_needs_next(world: World, engine: FakeEngine) -> None:
    job = await sync_to_async(running)(await sync_to_async(world.job)(), "rollout_started")
    async with socket(world, world.alice, job.public_id, after=1) as connection:
        await sync_to_async(reach.tell_parts)("", {"sampler": LOST})
        await announce_reach()
        assert await restarting(connection) == {"part": "sampler", "since": LOST.isoformat()}
        await sync_to_async(running)(job, "rollout_ready")
        await announce(job, 2)
        assert json.loads((await connection.receive_output(timeout=10))["text"])["type"] == "events"
        assert await restarting(connection) is None


async def restarting(connection: Any) -> Any:
    message = json.loads((await connection.receive_output(timeout=10))["text"])
    assert (message["type"], message["engine_away_since"]) == ("ping", None)
    return message["engine_restarting"]
