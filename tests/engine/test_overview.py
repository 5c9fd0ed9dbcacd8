from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from engine.service import create_app
from engine.whatif import Question, answer
from tests.engine.world import World, policy

pytestmark = pytest.mark.asyncio
AUTH = {"Authorization": "Bearer secret"}


@pytest.fixture
async def world(tmp_path: Path):
    world = World(tmp_path)
    await world.open(policy=policy(max_active=1))
    yield world
    await world.manager.stop()


async def held_at_its_rollout(world: World, *jobs: str) -> None:
    """The first rolls out and is held there; the others wait behind it."""
    for job in jobs:
        world.script.gate("rollout", job)
        await world.submit(job)
    known = world.manager._driver.scheduler.jobs
    await world.until(lambda: world.rollout.running == [jobs[0]] and len(known) == len(jobs))


async def test_an_operator_sees_who_runs_who_waits_and_why(world: World) -> None:
    await held_at_its_rollout(world, "job_a", "job_b")
    seen = await world.manager.overview()
    first, second = seen["open"]
    assert seen["offset"] == (await world.manager.events(0, 0, 1000))["last"]
    assert (first["job"], first["phase"], first["kv_held"]) == ("job_a", "rollout", True)
    assert (second["phase"], second["code"], second["position"]) == ("waiting", "slots", 1)
    assert [(entry["place"], entry["job"], entry["code"]) for entry in seen["next"]] == [(1, "job_b", "slots")]
    assert "adapter slot" in seen["next"][0]["why_not"]
    assert first["phase_seconds"] > 0 and second["phase_seconds"] is None


async def test_an_operator_sees_workers_versions_and_shares(world: World) -> None:
    await held_at_its_rollout(world, "job_a")
    seen = await world.manager.overview()
    assert [(worker["kind"], worker["alive"]) for worker in seen["workers"]] == [("sampler", True), ("trainer", True)]
    assert seen["versions"] == {"job_a": [0]}
    assert [share["weight"] for share in seen["shares"]] == [1.0]


async def test_the_training_queue_is_in_the_order_of_training(world: World) -> None:
    await world.manager.set_policy({"max_active": 3})
    world.script.gate("step", "job_a")
    for job in ("job_a", "job_b", "job_c"):
        await world.submit(job)
    await world.until(lambda: len(world.manager._driver.scheduler.pipeline.ready) == 2)
    seen = (await world.manager.overview())["training"]
    assert (seen["running"], seen["queue"]) == (["job_a"], ["job_b", "job_c"])


async def test_what_if_needs_the_secret_and_changes_nothing(world: World) -> None:
    await held_at_its_rollout(world, "job_a", "job_b")
    app = create_app(world.manager, "secret")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
        assert (await client.post("/whatif", json={})).status_code == 401
        told = (await client.post("/whatif", json={"jobs": 4, "workload": "like", "like": "job_a", "steps": 2}, headers=AUTH)).json()
    assert (told["jobs_now"], told["jobs_then"]) == (2, 6)
    assert told["then"]["ttfs_seconds"] > told["now"]["ttfs_seconds"]
    assert "datasheets" in told["speeds"]
    assert len((await world.manager.overview())["open"]) == 2


async def test_what_if_knows_a_better_policy_from_a_worse(world: World) -> None:
    await held_at_its_rollout(world, "job_a", "job_b", "job_c")
    overview = await world.manager.overview()
    wider = answer(Question(jobs=0, policy={"max_active": 3}), overview)
    assert wider["then"]["steps_per_hour"] > wider["now"]["steps_per_hour"]


@pytest.mark.parametrize(
    ("asked", "field"), [({"policy": {"max_active": 0}}, "policy"), ({"workload": "like", "like": "job_x"}, "like"), ({"jobs": 65}, "jobs")]
)
async def test_a_bad_question_is_refused_by_field(world: World, asked: dict, field: str) -> None:
    app = create_app(world.manager, "secret")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine", headers=AUTH) as client:
        refused = await client.post("/whatif", json=asked)
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, field)


async def test_nothing_open_is_an_answer_too(world: World) -> None:
    told = answer(Question(jobs=0), await world.manager.overview())
    assert (told["now"], told["then"]) == (None, None)
