"""A grader that fails on more than a fifth of a step pauses its job, with the grader's own words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.ports import RolloutResult
from engine.rollout.summary import contents
from engine.sim.fakes import FakeRolloutPort
from engine.trajectory import decode, encode
from tests.engine.world import World

REASON = "python: line 3: KeyError: 'answer'"


class Ungraded(FakeRolloutPort):
    """The first ``count`` completions of each batch cannot be graded."""

    def __init__(self, script, count: int) -> None:
        super().__init__(script)
        self.count = count

    async def rollout(self, request):
        batch = decode((await super().rollout(request)).batch)
        failed = [replace(trajectory, reward=None, invalid=REASON) for trajectory in batch.trajectories[: self.count]]
        trajectories = [*failed, *batch.trajectories[self.count :]]
        counted = contents(trajectories, group_size=batch.group_size)
        summary = batch.summary | {name: counted[name] for name in ("invalid", "invalid_reason")}
        return RolloutResult(batch=encode(replace(batch, trajectories=trajectories, summary=summary)), summary=summary)


async def played(tmp_path, count: int) -> World:
    world = World(tmp_path)
    world.rollout = Ungraded(world.script, count)
    await world.open()
    raw = world.submission(steps=3)
    raw["spec"]["rollout"] = {"prompts_per_step": 4, "group_size": 5, "max_prompt_tokens": 8, "max_new_tokens": 8}
    await world.manager.submit("job_a", raw)
    return world


@pytest.mark.asyncio
async def test_more_than_a_fifth_of_invalid_gradings_pauses_the_job_and_says_why(tmp_path):
    world = await played(tmp_path, count=5)
    paused = (await world.seen("job_a", "paused"))["data"]
    (request,) = world.events("job_a", "pause_requested")
    assert (paused["version"], request.data["code"]) == (1, "invalid")
    assert paused["reason"].startswith(f"5 of 20 completions of a step could not be graded: {REASON}.")
    await world.manager.stop()


@pytest.mark.asyncio
async def test_a_fifth_of_them_is_borne(tmp_path):
    world = await played(tmp_path, count=4)
    assert (await world.ended("job_a"))["job_a"]["version"] == 3
    assert world.events("job_a", "pause_requested") == []
    await world.manager.stop()
