from __future__ import annotations

import pytest

from engine.restore import replay
from tests.engine.world import World

pytestmark = pytest.mark.asyncio


async def eventful(world: World) -> None:
    """Two jobs with a lost attempt, a pause, a change of priority, a cancel, an evaluation and a change of policy between them."""
    world.script.fail("rollout", "job_a", 1)
    gate = world.script.gate("rollout", "job_b")
    await world.submit("job_a", steps=3, with_eval=True)
    await world.submit("job_b", steps=3)
    await world.manager.set_policy({"max_active": 3})
    await world.manager.reprioritise("job_b", 3)
    await world.called("rollout", "job_b")
    await world.manager.pause("job_b")
    gate.set()
    await world.seen("job_b", "paused")
    await world.manager.resume("job_b")
    await world.manager.cancel("job_b")
    await world.ended("job_a", "job_b")
    await world.manager.delete("job_b")


async def test_replaying_the_events_gives_the_state_that_lived(tmp_path):
    world = World(tmp_path)
    await world.open()
    await eventful(world)
    await world.manager.stop()
    assert replay(world.manager._journal) == world.manager._history
    assert len(world.events("job_b")) > 10


async def test_half_a_history_replays_too(tmp_path):
    world = World(tmp_path)
    world.script.gate("step", "job_a", 1)
    await world.open()
    await world.submit("job_a", steps=3)
    await world.called("step", "job_a", times=2)
    await world.manager.stop()
    job = replay(world.manager._journal).jobs["job_a"]
    assert (job.state, job.version, job.attempt, job.ready["attempt"]) == ("running", 1, 1, 1)
    assert job == world.manager._history.jobs["job_a"]
