"""What a job trains on was sampled from its latest version, under a load that was ordered; anything else is told and never trained on."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from engine.ports import LoadRefused, RolloutRequest, RolloutResult
from engine.sim.fakes import FakeRolloutPort, Script
from engine.trajectory import decode, encode
from tests.engine.world import World

pytestmark = pytest.mark.asyncio

NO_EFFECT = "job_a@1 was loaded without effect: its log-probabilities equal the base model's"


class Restamping(FakeRolloutPort):
    """Answers the first rollout of version 1 with trajectories whose stamps are changed."""

    def __init__(self, script: Script, **stamps: int):
        super().__init__(script)
        self._stamps, self._lies = stamps, 1

    async def rollout(self, request: RolloutRequest) -> RolloutResult:
        result = await super().rollout(request)
        if request.adapter.version != 1 or not self._lies:
            return result
        self._lies -= 1
        batch = decode(result.batch)
        stamped = [replace(t, **self._stamps) for t in batch.trajectories]
        return dataclasses.replace(result, batch=encode(replace(batch, trajectories=stamped)))


@pytest.mark.parametrize("stamp", [{"policy_version": 0}, {"attempt": 7}, {"load_id": 10_000}], ids=lambda stamp: next(iter(stamp)))
async def test_a_batch_with_a_wrong_stamp_is_lost_told_and_sampled_again(tmp_path, stamp):
    world = World(tmp_path)
    world.rollout = Restamping(world.script, **stamp)
    await world.open()
    await world.submit("job_a", steps=2)
    ended = (await world.ended("job_a"))["job_a"]

    [lost] = world.events("job_a", "rollout_lost")
    assert (lost.data["version"], lost.data["attempt"], lost.data["attribution"]) == (1, 1, "platform")
    assert (ended["state"], [step.data["attempt"] for step in world.events("job_a", "step")]) == ("succeeded", [1, 2])
    await world.manager.stop()


async def test_each_step_certifies_all_of_its_completions_and_names_the_load_that_was_ordered(tmp_path):
    world = World(tmp_path)
    await world.open()
    await world.submit("job_a", steps=3)
    await world.ended("job_a")

    ordered = [event.offset for event in world.events("job_a", "rollout_started")]
    certificates = [step.data["certificate"] for step in world.events("job_a", "step")]
    assert [(c["completions"], c["on_policy"], c["version"]) for c in certificates] == [(8, 8, 0), (8, 8, 1), (8, 8, 2)]
    assert [c["load_id"] for c in certificates] == ordered
    await world.manager.stop()


async def test_an_adapter_without_effect_is_an_error_that_is_told_and_never_sampled_from(tmp_path):
    """What the probe after a load finds: a version that equals the base model although it should not."""
    world = World(tmp_path)
    await world.open()
    world.script.fail("rollout", "job_a", 1, error=LoadRefused(NO_EFFECT), times=100)
    await world.submit("job_a", steps=3)
    await world.submit("job_b", steps=3)
    ended = await world.ended("job_a", "job_b")

    assert {lost.data["reason"] for lost in world.events("job_a", "rollout_lost")} == {NO_EFFECT}
    assert (ended["job_a"]["state"], ended["job_a"]["attribution"], ended["job_a"]["version"]) == ("failed", "platform", 1)
    assert NO_EFFECT in ended["job_a"]["reason"]
    assert [call.version for call in world.script.made("step", "job_a")] == [0]
    assert ended["job_b"]["state"] == "succeeded"
    await world.manager.stop()


async def test_after_an_adapter_that_did_nothing_once_the_next_load_is_a_fresh_one(tmp_path):
    world = World(tmp_path)
    await world.open()
    world.script.fail("rollout", "job_a", 1, error=LoadRefused(NO_EFFECT))
    await world.submit("job_a", steps=2)
    await world.ended("job_a")

    loads = [event.offset for event in world.events("job_a", "rollout_started") if event.data["version"] == 1]
    assert len(loads) == 2
    assert world.events("job_a", "step")[1].data["certificate"]["load_id"] == loads[1]
    await world.manager.stop()
