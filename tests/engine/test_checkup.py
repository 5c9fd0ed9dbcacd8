"""What the doctor finds becomes events, once; and it pauses only whom he was told to pause."""

from __future__ import annotations

import dataclasses

import pytest

from engine.sim.fakes import FakeRolloutPort
from tests.engine.world import World

pytestmark = pytest.mark.asyncio


class Cut(FakeRolloutPort):
    """Completions of versions below ``until`` are all cut at the limit."""

    until = 10**6

    async def rollout(self, request):
        result = await super().rollout(request)
        cut = result.summary["completions"] if request.adapter.version < self.until else 0
        return dataclasses.replace(result, summary={**result.summary, "truncated": cut})


def world_of(tmp_path) -> World:
    world = World(tmp_path)
    world.rollout = Cut(world.script)
    return world


def submission(world: World, *, steps: int, pause_on: list[str] | None = None):
    raw = world.submission(steps=steps)
    raw["spec"]["doctor"] = {"pause_on": pause_on or []}
    return raw


async def test_a_finding_is_told_once_with_its_evidence(tmp_path):
    world = world_of(tmp_path)
    await world.open()
    await world.manager.submit("job_a", submission(world, steps=16))
    await world.ended("job_a")
    (finding,) = (event for event in world.events("job_a", "finding") if event.data["code"] == "truncation")
    assert (finding.data["first_step"], finding.data["last_step"], finding.data["chart"]) == (1, 10, "truncated")
    assert "100 %" in finding.data["evidence"] and finding.data["advice"]
    assert world.events("job_a", "pause_requested") == []
    await world.manager.stop()


async def test_it_is_over_when_it_was_not_true_for_some_steps(tmp_path):
    world = world_of(tmp_path)
    world.rollout.until = 12
    await world.open()
    await world.manager.submit("job_a", submission(world, steps=30))
    await world.ended("job_a")
    story = [(e.kind, e.data["code"]) for e in world.events("job_a") if e.kind.startswith("finding") and e.data["code"] == "truncation"]
    assert story == [("finding", "truncation"), ("finding_over", "truncation")]
    await world.manager.stop()


async def test_a_finding_may_pause_the_job_behind_the_running_step(tmp_path):
    world = world_of(tmp_path)
    await world.open()
    await world.manager.submit("job_a", submission(world, steps=14, pause_on=["truncation"]))
    paused = (await world.seen("job_a", "paused"))["data"]
    assert paused["version"] == 10 and "cut off" in paused["reason"] and "Raise the longest completion" in paused["reason"]
    assert [event.data["code"] for event in world.events("job_a", "pause_requested")] == ["truncation"]
    await world.manager.resume("job_a")
    assert (await world.ended("job_a"))["job_a"]["version"] == 14  # the same finding does not hold it again
    await world.manager.stop()


async def test_a_restart_tells_nothing_twice_and_keeps_the_pause(tmp_path):
    world = world_of(tmp_path)
    await world.open()
    await world.manager.submit("job_a", submission(world, steps=14, pause_on=["truncation"]))
    await world.seen("job_a", "paused")
    await world.manager.stop()
    await world.open()
    assert (await world.manager.status())["jobs"][0]["state"] == "paused"
    await world.manager.resume("job_a")
    await world.ended("job_a")
    assert len([e for e in world.events("job_a", "finding") if e.data["code"] == "truncation"]) == 1
    assert len(world.events("job_a", "pause_requested")) == 1
    await world.manager.stop()
