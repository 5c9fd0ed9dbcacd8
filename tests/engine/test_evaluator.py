"""Held-out rows through the manager: what is kept of them, what the events say, and what can be read afterwards."""

from __future__ import annotations

import pytest

from engine.errors import NotFound
from engine.evaluation import decode
from tests.engine.test_restart import die
from tests.engine.world import World

pytestmark = pytest.mark.asyncio


async def evaluated(tmp_path, **submission) -> World:
    world = World(tmp_path)
    await world.open()
    await world.submit("job_a", with_eval=True, **{"steps": 4, "eval_every": 2, **submission})
    await world.ended("job_a")
    return world


async def test_every_evaluation_keeps_each_row(tmp_path):
    world = await evaluated(tmp_path)
    stored = {version: decode(world.manager._store.read_evaluation("job_a", version)) for version in (0, 2, 4)}
    assert [event.data["version"] for event in world.events("job_a", "eval")] == [0, 2, 4]
    for version, found in stored.items():
        assert (found.job, found.version, [row.row for row in found.rows]) == ("job_a", version, [20, 21, 22, 23])
        assert all(row.text and len(row.sha256) == 64 for row in found.rows)
    await world.manager.stop()


async def test_the_event_compares_with_version_0_and_names_the_best(tmp_path):
    world = await evaluated(tmp_path)
    first, second, third = (event.data for event in world.events("job_a", "eval"))
    assert (first["comparison"], first["best"]) == (None, 0)
    for data in (second, third):
        compared = data["comparison"]
        assert (compared["against"], compared["rows"]) == (0, 4)
        assert compared["wins"] + compared["losses"] + compared["ties"] == 4
        assert compared["difference"] == pytest.approx(data["reward_mean"] - first["reward_mean"])
    rewards = {data["version"]: data["reward_mean"] for data in (first, second, third)}
    assert third["best"] == min(rewards, key=lambda version: (-rewards[version], version))
    await world.manager.stop()


async def test_the_rows_can_be_read_in_pages_and_by_what_became_of_them(tmp_path):
    world = await evaluated(tmp_path)
    whole = await world.manager.evaluation("job_a", None, against=0, change=None, offset=0, limit=100)
    assert (whole["version"], whole["against"], whole["total"]) == (4, 0, 4)
    assert whole["comparison"] == world.events("job_a", "eval")[-1].data["comparison"]
    assert whole["rows"][1]["prompt"] == "21+1="
    page = await world.manager.evaluation("job_a", 4, against=0, change=None, offset=1, limit=2)
    assert page["rows"] == whole["rows"][1:3]
    for change in ("win", "loss", "tie"):
        some = await world.manager.evaluation("job_a", 4, against=0, change=change, offset=0, limit=100)
        assert some["rows"] == [row for row in whole["rows"] if row["change"] == change]
    await world.manager.stop()


async def test_a_version_that_was_not_evaluated_is_not_there(tmp_path):
    world = await evaluated(tmp_path)
    for version, against in ((1, 0), (4, 3), (99, 0)):
        with pytest.raises(NotFound):
            await world.manager.evaluation("job_a", version, against=against, change=None, offset=0, limit=1)
    await world.manager.stop()


async def test_without_its_base_an_evaluation_says_what_it_can(tmp_path):
    world = World(tmp_path)
    world.script.fail("evaluate", "job_a", 0, times=3)
    await world.open()
    await world.submit("job_a", with_eval=True, steps=1)
    await world.ended("job_a")
    (event,) = world.events("job_a", "eval")
    assert (event.data["version"], event.data["comparison"], event.data["best"]) == (1, None, 1)
    await world.manager.stop()


async def test_a_tenants_evaluations_that_hang_keep_nobody_else_from_his_end(tmp_path):
    world = World(tmp_path)
    hanging = world.script.gate("evaluate", "job_a")
    await world.open()
    for job, tenant in (("job_a", "ten_a"), ("job_c", "ten_a"), ("job_b", "ten_b")):
        await world.submit(job, with_eval=True, steps=1, tenant=tenant)
    await world.ended("job_b")
    assert ([call.version for call in world.script.made("evaluate", "job_a")], world.script.made("evaluate", "job_c")) == ([0], [])

    hanging.set()
    await world.ended("job_a", "job_c")
    await world.manager.stop()


@pytest.mark.parametrize("point", ["evaluation:staged", "evaluation:renamed"])
async def test_a_manager_that_dies_while_it_keeps_the_rows_evaluates_again(tmp_path, point):
    world = World(tmp_path)
    assert await die(world, point, nth=1, with_eval=True)
    await world.open()
    await world.ended("job_a")
    assert [event.data["version"] for event in world.events("job_a", "eval")] == [0, 2]
    await world.manager.stop()
