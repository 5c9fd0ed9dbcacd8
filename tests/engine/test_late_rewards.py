"""A reward that hangs says so while its step is still being graded, not minutes afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from engine.ports import PortError
from engine.sim.fakes import FakeRolloutPort
from tests.engine.world import World

pytestmark = pytest.mark.asyncio
REASON = "row 3: exact: no answer within 5 s"


class SlowlyGraded(FakeRolloutPort):
    """Its counters say what the test put there; an exception there is raised."""

    late = 0
    looks = 0
    broken = False

    async def stats(self) -> dict[str, Any]:
        self.looks += 1
        if self.broken:
            raise PortError("no answer")
        found = {"completions": 8, "graded": self.late + 1, "late": self.late, "reason": REASON if self.late else ""}
        return {**await super().stats(), "gradings": {"job_a": found}}


@pytest.fixture
async def world(tmp_path):
    world = World(tmp_path)
    world.rollout = SlowlyGraded(world.script)
    await world.open(late_look_seconds=0)  # once in each turn of the loop
    yield world
    await world.manager.stop()


async def looked(world: World) -> None:
    """A whole look has passed from here."""
    until = world.rollout.looks + 2
    await world.until(lambda: world.rollout.looks >= until)


def warnings(world: World) -> list[dict[str, Any]]:
    return [event.data for event in world.events("job_a", "warning")]


async def test_the_first_late_call_is_told_while_the_step_is_graded(world):
    world.rollout.late = 1
    gate = world.script.gate("rollout", "job_a", 0)
    await world.submit("job_a")
    await world.seen("job_a", "warning")
    (told,) = warnings(world)
    assert (told["code"], told["version"], told["late"], told["graded"], told["completions"]) == ("reward_late", 0, 1, 2, 8)
    assert told["message"] == f"The reward is late: 1 of the 2 gradings so far, of 8 in this step, ended at their deadline ({REASON})"
    gate.set()
    await world.ended("job_a")


async def test_it_is_told_again_only_when_there_are_twice_as_many(world):
    gate = world.script.gate("rollout", "job_a", 0)
    await world.submit("job_a")
    for late in (1, 1, 2, 3, 4):
        world.rollout.late = late
        await looked(world)
    world.rollout.late = 0
    gate.set()
    await world.ended("job_a")  # by then the journal has all of them
    assert [told["late"] for told in warnings(world)] == [1, 2, 4]


async def test_a_reward_in_time_is_not_mentioned(world):
    gate = world.script.gate("rollout", "job_a", 0)
    await world.submit("job_a")
    await looked(world)
    gate.set()
    await world.ended("job_a")
    assert warnings(world) == []


async def test_a_sampler_that_does_not_say_costs_the_job_nothing_and_is_asked_again(world):
    world.rollout.broken = True
    gate = world.script.gate("rollout", "job_a", 0)
    await world.submit("job_a")
    await looked(world)
    world.rollout.broken, world.rollout.late = False, 1
    await world.seen("job_a", "warning")
    gate.set()
    assert (await world.ended("job_a"))["job_a"]["state"] == "succeeded"
