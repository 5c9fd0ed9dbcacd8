"""The sampler's memory reaches the scheduler: while rollouts are under way and the policy is adaptive, and not otherwise."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import Invalid
from engine.ports import PortError
from engine.sim.fakes import FakeRolloutPort
from tests.engine.world import World, policy

pytestmark = pytest.mark.asyncio

READ = {"adaptive": {"start": 1, "settle_seconds": 0.0, "cooldown_seconds": 0.0, "probe_seconds": 0.0}}


class MeteredRolloutPort(FakeRolloutPort):
    """Its counters say what the test put there; an exception there is raised."""

    kv_used, waiting, preempted = 0.1, 0, 0
    broken = False
    reads = 0

    async def stats(self) -> dict[str, Any]:
        self.reads += 1
        if self.broken:
            raise PortError("no answer")
        return {"kv_used": self.kv_used, "waiting": self.waiting, "preempted": self.preempted}


@pytest.fixture
async def world(tmp_path):
    world = World(tmp_path)
    world.rollout = MeteredRolloutPort(world.script)
    await world.open(kv_sample_seconds=0)  # once in each turn of the loop
    yield world
    await world.manager.stop()


def limit(world: World) -> int:
    return world.manager._driver.scheduler.pipeline.concurrency.limit


async def roll_out(world: World, *jobs: str) -> None:
    for job in jobs:
        world.script.gate("rollout", job, 0)
        await world.submit(job, tenant=f"ten_{job}")


async def test_room_in_the_cache_lets_more_jobs_roll_out(world):
    await world.manager.set_policy(READ)
    await roll_out(world, "job_a", "job_b")
    await world.until(lambda: len(world.rollout.running) == 2)


async def test_new_preemptions_lower_the_limit_and_old_ones_do_not(world):
    world.rollout.preempted = 1000  # counted before this manager began
    await world.manager.set_policy(READ)
    await roll_out(world, "job_a", "job_b", "job_c")
    await world.until(lambda: len(world.rollout.running) == 3)
    world.rollout.kv_used, reads = 0.5, world.rollout.reads
    await world.until(lambda: world.rollout.reads > reads + 1)  # what was counted before is known now
    before = limit(world)
    world.rollout.preempted += 1
    await world.until(lambda: limit(world) < before)


async def test_a_sampler_that_started_anew_has_preempted_nothing(world):
    world.rollout.preempted = 1000
    await world.manager.set_policy(READ)
    await roll_out(world, "job_a", "job_b")
    await world.until(lambda: len(world.rollout.running) == 2)
    world.rollout.preempted, reads, before = 3, world.rollout.reads, limit(world)
    await world.until(lambda: world.rollout.reads > reads + 2)
    assert limit(world) >= before


async def reads_in_100_turns(world: World) -> int:
    before = world.rollout.reads
    for _ in range(100):
        await asyncio.sleep(0)
    return world.rollout.reads - before


async def test_nothing_is_read_while_estimates_decide(world):
    await roll_out(world, "job_a")
    await world.called("rollout", "job_a")
    assert await reads_in_100_turns(world) == 0
    await world.manager.set_policy(READ)
    assert await reads_in_100_turns(world) > 10
    await world.manager.set_policy({"adaptive": None})
    assert await reads_in_100_turns(world) <= 1


async def test_nothing_is_read_while_no_rollout_is_under_way(world):
    await world.manager.set_policy(READ)
    world.script.gate("step", "job_a", 0)
    await world.submit("job_a")
    await world.called("step", "job_a")
    assert await reads_in_100_turns(world) <= 1


async def test_counters_that_cannot_be_read_stop_nothing(world):
    world.rollout.broken = True
    await world.manager.set_policy(READ)
    await roll_out(world, "job_a", "job_b")
    await world.until(lambda: world.rollout.reads > 2)
    world.rollout.broken = False
    await world.until(lambda: len(world.rollout.running) == 2)


async def test_the_policy_that_an_operator_set_is_adaptive_after_a_restart(world):
    answer = await world.manager.set_policy({"adaptive": {"start": 3}})
    assert answer["adaptive"]["start"] == 3
    await world.manager.stop()
    await world.open()
    assert (await world.manager.status())["policy"]["adaptive"] == answer["adaptive"]
    assert limit(world) == 3


async def test_a_field_set_back_to_its_usual_value_follows_the_settings_of_the_next_start(world):
    await world.manager.set_policy({"kv_hold": "rollout", "max_active": 1, "kv_budget_bytes": 10})
    await world.manager.set_policy({"max_active": policy().max_active, "kv_budget_bytes": policy().kv_budget_bytes})
    await world.manager.stop()
    await world.open(policy=replace(policy(), max_active=7, kv_budget_bytes=12345))
    found = (await world.manager.status())["policy"]
    assert (found["kv_hold"], found["max_active"], found["kv_budget_bytes"]) == ("rollout", 7, 12345)


@pytest.mark.parametrize("bad", [{"begin": 3}, {"cut": 2}, 5])
async def test_a_bad_adaptive_policy_is_refused(world, bad):
    with pytest.raises(Invalid, match="adaptive"):
        await world.manager.set_policy({"adaptive": bad})


async def test_an_old_change_that_no_longer_fits_does_not_keep_the_engine_from_starting(world):
    world.manager._driver.say("", "policy", {"changes": {"kv_hold": "of old"}})
    await world.manager.stop()
    await world.open()
    assert (await world.manager.status())["policy"]["kv_hold"] == "life"
