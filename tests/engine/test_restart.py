"""Kill the manager anywhere; the next one goes on, and nobody can tell from the versions."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil

import pytest
from msgspec.structs import replace

from engine.audit import audit
from engine.core.policy import shipped
from engine.driver import Deadlines
from engine.epoch import StaleEpoch, claim
from engine.errors import Conflict
from engine.sim.fakes import FakeTrainPort
from engine.trajectory import decode, encode
from tests.engine.crashes import Died, dies_at
from tests.engine.world import MODEL, World

pytestmark = pytest.mark.asyncio


class FixedRollouts(FakeTrainPort):
    """Trains on what was sampled, whichever attempt and load of the adapter sampled it (invariant I5 speaks of fixed rollouts)."""

    async def step(self, request):
        batch = decode(request.batch)
        kept, dropped = ([replace(t, attempt=1, load_id=0) for t in some] for some in (batch.trajectories, batch.dropped))
        batch = replace(batch, attempt=1, trajectories=kept, dropped=dropped)
        return await super().step(dataclasses.replace(request, attempt=1, batch=encode(batch)))


async def die(world: World, point: str, *, nth: int, raw=None, **submission) -> bool:
    """Run a job (``raw``, or one of two steps) until the manager dies at ``point``; False if it never got there."""
    manager = await world.open(crash_at=dies_at(point, nth=nth))
    try:
        await manager.submit("job_a", raw or world.submission(steps=2, **submission))
    except Died:
        return True
    ended = asyncio.create_task(world.seen("job_a", "ended"))
    await asyncio.wait([ended, manager.failed], return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    await manager._driver.stop()
    return manager.failed.done()


def versions(world: World, job: str = "job_a") -> list[bytes]:
    folder = world.root / "engine/jobs" / job
    return [path.read_bytes() for path in sorted(folder.glob("v*/*.safetensors"))]


async def undisturbed(root) -> list[bytes]:
    world = World(root)
    world.train = FixedRollouts(world.script)
    await world.open()
    await world.submit("job_a", steps=2)
    await world.ended("job_a")
    await world.manager.stop()
    return versions(world)


async def passed_points(root) -> list[str]:
    """Every crash point that a whole run of two steps passes, each time that it passes it."""
    points: list[str] = []
    world = World(root)
    await world.open(crash_at=points.append)
    await world.submit("job_a", steps=2)
    await world.ended("job_a")
    await world.manager.stop()
    return points


async def test_a_manager_that_dies_anywhere_is_continued_to_the_same_bytes(tmp_path):
    points = await passed_points(tmp_path / "dry")
    expected = await undisturbed(tmp_path / "undisturbed")
    assert len(set(points)) > 15 and len(set(expected)) == 6
    deaths = 0
    for point in sorted(set(points)):
        for nth in sorted({1, points.count(point) // 2, points.count(point)} - {0}):
            world = World(tmp_path / f"{point.replace(':', '-')}-{nth}")
            world.train = FixedRollouts(world.script)
            if not await die(world, point, nth=nth):
                continue  # group commits fall together differently from run to run
            deaths += 1
            await world.open()
            await world.submit("job_a", steps=2)
            ended = (await world.ended("job_a"))["job_a"]
            await world.manager.stop()
            assert (ended["state"], ended["version"]) == ("succeeded", 2), (point, nth)
            assert audit(world.root / "engine") == [], (point, nth)
            assert versions(world) == expected, (point, nth)
            shutil.rmtree(world.root)
    assert deaths > 30


@pytest.mark.parametrize("point", ["commit:head:renamed", "commit:done"])
async def test_a_step_that_was_committed_but_not_told_is_told_once(tmp_path, point):
    world = World(tmp_path)
    assert await die(world, point, nth=2)
    assert world.events("job_a", "step") == []
    await world.open()
    await world.ended("job_a")
    first, second = world.events("job_a", "step")
    assert (first.data["version"], second.data["version"]) == (1, 2)
    assert (first.epoch, second.epoch) == (2, 2)
    # It is dated when it was made (by the first manager), not when it was told (an hour later by the second).
    assert (second.at - first.at).total_seconds() > 3000
    assert len(world.script.made("step", "job_a")) == 2
    await world.manager.stop()


async def test_a_ready_batch_survives_and_is_not_sampled_again(tmp_path):
    world = World(tmp_path)
    world.script.gate("step", "job_a")
    await world.open()
    await world.submit("job_a", steps=1)
    await world.called("step", "job_a")
    await world.manager.stop()
    world.script.gate("step", "job_a").set()
    await world.open()
    await world.ended("job_a")
    assert len(world.script.made("rollout", "job_a")) == 1
    assert world.events("job_a", "step")[0].data["attempt"] == 1
    await world.manager.stop()


async def test_an_interrupted_rollout_is_redone_under_the_next_attempt(tmp_path):
    world = World(tmp_path)
    world.script.gate("rollout", "job_a")
    await world.open()
    await world.submit("job_a", steps=1)
    await world.called("rollout", "job_a")
    await world.manager.stop()
    world.script.gate("rollout", "job_a").set()
    await world.open()
    await world.ended("job_a")
    assert [call.attempt for call in world.script.made("rollout", "job_a")] == [1, 2]
    assert audit(tmp_path / "engine") == []
    await world.manager.stop()


async def test_what_the_sampler_was_doing_for_the_dead_manager_is_aborted(tmp_path):
    world = World(tmp_path)
    world.script.gate("rollout", "job_a")
    await world.open()
    await world.submit("job_a", steps=1)
    await world.called("rollout", "job_a")
    await world.manager.stop()
    await world.open()
    assert world.script.made("abort", "job_a")
    await world.manager.stop()


async def test_who_had_a_place_has_it_again_before_those_who_waited(tmp_path):
    world = World(tmp_path)
    for n in range(1, 5):
        world.script.gate("rollout", f"job_{n}")
    held = world.script.gate("step", "job_0")
    await world.open()
    for n in range(5):
        await world.submit(f"job_{n}")
    await world.called("step", "job_0")
    await world.manager.pause("job_0")
    held.set()
    await world.seen("job_4", "admitted")
    await world.manager.resume("job_0")
    await world.seen("job_0", "waiting")
    await world.manager.stop()
    await world.open()
    states = {job["job"]: job["state"] for job in (await world.manager.status())["jobs"]}
    assert states == {"job_0": "queued", **{f"job_{n}": "running" for n in range(1, 5)}}
    assert [call.job for call in world.script.made("rollout")].count("job_0") == 1
    await world.manager.stop()
    assert [world.kinds(f"job_{n}").count("admitted") for n in range(5)] == [1] * 5


async def test_a_paused_job_stays_paused_until_it_is_resumed(tmp_path):
    world = World(tmp_path)
    await world.open()
    await world.manager.set_admission("pause")
    await world.submit("job_a", steps=1)
    await world.manager.pause("job_a")
    await world.seen("job_a", "paused")
    await world.manager.set_admission("open")
    await world.manager.stop()
    await world.open()
    [job] = (await world.manager.status())["jobs"]
    assert job["state"] == "paused"
    await world.manager.resume("job_a")
    await world.ended("job_a")
    assert world.kinds("job_a").count("paused") == 1
    await world.manager.stop()


async def test_a_cancel_that_was_answered_holds_after_a_restart(tmp_path):
    world = World(tmp_path)
    world.script.gate("step", "job_a")
    await world.open()
    await world.submit("job_a", steps=3)
    await world.called("step", "job_a")
    await world.manager.cancel("job_a")
    await world.manager.stop()
    await world.open()
    assert (await world.ended("job_a"))["job_a"]["state"] == "cancelled"
    await world.manager.stop()


async def test_admission_policy_and_priority_outlive_the_manager(tmp_path):
    world = World(tmp_path)
    await world.open()
    await world.manager.set_admission("pause")
    await world.manager.set_policy({"max_active": 2})
    await world.submit("job_a")
    await world.manager.reprioritise("job_a", 7)
    await world.manager.stop()
    await world.open()
    status = await world.manager.status()
    assert (status["admission"], status["slots"]["total"]) == ("paused", 2)
    assert world.manager._history.jobs["job_a"].priority == 7
    with pytest.raises(Conflict):
        await world.submit("job_a", steps=9)
    await world.manager.stop()


async def test_a_job_between_two_steps_is_still_a_running_one_after_a_restart(tmp_path):
    """As shipped, slots are held per step: with one slot, the other job has it when the manager goes."""
    world, policy = World(tmp_path), shipped("marlaas", slots=1, kv_budget_bytes=10_000)
    gates = [world.script.gate("rollout", "job_a", 0), world.script.gate("rollout", "job_b", 0)]
    await world.open(policy=policy)
    await world.submit("job_a", steps=3)
    await world.called("rollout", "job_a")
    await world.submit("job_b", tenant="ten_b", steps=2)
    await world.seen("job_b", "waiting")
    gates[0].set()
    await world.called("rollout", "job_b")
    await world.manager.stop()
    gates[1].set()
    await world.open(policy=policy)
    assert {job["job"]: job["state"] for job in (await world.manager.status())["jobs"]} == {"job_a": "running", "job_b": "running"}
    assert [data["version"] for data in (await world.ended("job_a", "job_b")).values()] == [3, 2]
    assert [len(world.events(job, "admitted")) for job in ("job_a", "job_b")] == [1, 1]
    await world.manager.stop()


async def test_a_lost_evaluation_is_run_again(tmp_path):
    world = World(tmp_path)
    gate = world.script.gate("evaluate", "job_a", 2)
    await world.open()
    await world.submit("job_a", steps=2, with_eval=True)
    await world.called("evaluate", "job_a", times=2)
    await world.manager.stop()
    gate.set()
    await world.open()
    await world.ended("job_a")
    assert [event.data["version"] for event in world.events("job_a", "eval")] == [0, 2]
    await world.manager.stop()


async def test_a_job_whose_versions_are_gone_fails_and_says_so(tmp_path):
    world = World(tmp_path)
    world.script.gate("rollout", "job_a", 1)
    await world.open()
    await world.submit("job_a", steps=2)
    await world.seen("job_a", "step")
    await world.manager.stop()
    shutil.rmtree(tmp_path / "engine/jobs/job_a")
    await world.open()
    ended = (await world.ended("job_a"))["job_a"]
    assert (ended["state"], ended["attribution"]) == ("failed", "platform")
    assert "versions are gone" in ended["reason"]
    await world.manager.stop()


async def test_a_replaced_manager_knows_it_and_writes_no_more(tmp_path):
    world = World(tmp_path)
    gate = world.script.gate("step", "job_a")
    old = await world.open()
    await world.submit("job_a", steps=1)
    await world.called("step", "job_a")
    await world.seen("job_a", "train_started")
    claim(tmp_path / "engine")
    gate.set()
    assert isinstance(await asyncio.wait_for(old.failed, 20), StaleEpoch)
    assert world.events("job_a", "step") == []
    assert (await old.health())["ok"] is False
    await old._driver.stop()


async def test_a_deleted_job_is_gone_even_if_the_manager_died_while_deleting(tmp_path):
    world = World(tmp_path)
    await world.open()
    await world.submit("job_a", steps=1)
    await world.ended("job_a")
    await world.manager._driver.say("job_a", "deleted", {})
    await world.manager.stop()
    assert (tmp_path / "engine/jobs/job_a").exists()
    await world.open()
    assert not (tmp_path / "engine/jobs/job_a").exists()
    assert audit(tmp_path / "engine") == []
    await world.manager.stop()


async def test_what_was_being_deleted_is_gone_after_a_restart(tmp_path):
    world = World(tmp_path)
    await world.open()
    await world.submit("job_a", steps=2)
    await world.ended("job_a")
    await world.manager._driver.say("job_a", "completions_deleted", {})
    await world.manager._driver.say("job_a", "version_deleted", {"version": 1})
    await world.manager.stop()
    assert (tmp_path / "engine/jobs/job_a/rollouts").exists()
    await world.open()
    assert sorted(path.name for path in (tmp_path / "engine/jobs/job_a").iterdir()) == ["HEAD", "v0", "v2"]
    assert audit(tmp_path / "engine") == []
    await world.manager.stop()


async def test_a_second_manager_may_use_an_epoch_claimed_for_it(tmp_path):
    world = World(tmp_path)
    epoch = claim(tmp_path / "engine")
    manager = await world.open(epoch=epoch, deadlines=Deadlines())
    assert await manager.health() == {"ok": True, "epoch": epoch.number}
    await manager.stop()


async def test_a_draining_engine_that_restarts_starts_nothing(tmp_path):
    world = World(tmp_path)
    await world.open()
    gate = world.script.gate("rollout", "job_a", 0)
    await world.submit("job_a", steps=2)
    await world.called("rollout", "job_a")
    await world.manager.set_admission("drain")
    await world.manager.stop()
    gate.set()
    manager = await world.open()
    assert (await manager.status())["admission"] == "drain"
    assert [job["phase"] for job in (await manager.status())["jobs"]] == ["waiting"]
    await manager.set_admission("open")
    assert (await world.ended("job_a"))["job_a"]["state"] == "succeeded"
    await manager.stop()


@pytest.mark.parametrize("change", [{"name": "other"}, {"weights_sha256": "b" * 64}])
async def test_a_job_never_goes_on_with_another_base_model(tmp_path, change):
    world = World(tmp_path)
    first = MODEL.model_copy(update={"weights_sha256": "a" * 64})
    await world.open(model=first)
    gate = world.script.gate("rollout", "job_a", 1)
    await world.submit("job_a", steps=3)
    await world.called("rollout", "job_a", times=2)
    await world.manager.stop()
    gate.set()
    await world.open(model=first.model_copy(update=change))
    waiting = await world.seen("job_a", "waiting")
    assert waiting["data"]["code"] == "model"
    assert len(world.script.made("rollout", "job_a")) == 2
    await world.manager.stop()
    await world.open(model=first)
    assert (await world.ended("job_a"))["job_a"]["state"] == "succeeded"
    await world.manager.stop()


async def test_a_job_that_waits_for_its_model_can_be_cancelled(tmp_path):
    world = World(tmp_path)
    await world.open()
    world.script.gate("rollout", "job_a", 0)
    await world.submit("job_a")
    await world.called("rollout", "job_a")
    await world.manager.stop()
    manager = await world.open(model=MODEL.model_copy(update={"name": "other"}))
    await manager.cancel("job_a")
    assert (await world.ended("job_a"))["job_a"]["state"] == "cancelled"
    await manager.stop()


@pytest.mark.parametrize("held_in", ["rollout", "step"])
async def test_a_pause_changes_nothing_of_what_follows(tmp_path, held_in):
    """Paused in the middle of a step, restarted while it is held, resumed: the same rows, seeds, versions and bytes as undisturbed."""
    calm, paused = World(tmp_path / "calm"), World(tmp_path / "paused")
    for world in (calm, paused):
        world.train = FixedRollouts(world.script)
    gate = paused.script.gate(held_in, "job_a", 1)
    await calm.open()
    await calm.submit("job_a", steps=4)
    await calm.ended("job_a")
    await paused.open()
    await paused.submit("job_a", steps=4)
    await paused.called(held_in, "job_a", times=2)
    await paused.manager.pause("job_a")
    gate.set()
    await paused.seen("job_a", "paused")
    assert len(paused.script.made("step", "job_a")) == 2  # the running step commits, and no other begins
    await paused.manager.stop()
    await paused.open()
    await paused.manager.resume("job_a")
    await paused.ended("job_a")
    assert versions(paused) == versions(calm)
    assert [sampled(paused, version) for version in range(4)] == [sampled(calm, version) for version in range(4)]
    assert [event.data["version"] for event in paused.events("job_a", "step")] == [1, 2, 3, 4]
    for world in (calm, paused):
        await world.manager.stop()


def sampled(world: World, version: int) -> list[tuple[int, int, int]]:
    """(row, sample, seed) of each completion."""
    batch = decode(world.manager._store.read_rollout("job_a", version, 1))
    return [(t.row, t.sample, t.seed) for t in batch.trajectories]


async def test_the_status_says_where_the_journal_stood_when_this_epoch_began(tmp_path):
    world = World(tmp_path)
    gate = world.script.gate("step", "job_a", 1)
    await world.open()
    await world.submit("job_a", steps=2)
    await world.called("step", "job_a", times=2)
    await world.manager.stop()
    left = world.events("job_a")
    gate.set()
    await world.open()
    await world.ended("job_a")
    status = await world.manager.status()
    assert status["journal"]["began"] == left[-1].offset < status["journal"]["last"]
    assert [job["began_seq"] for job in status["jobs"]] == [left[-1].seq]
    await world.manager.stop()


async def test_a_reader_that_is_ahead_of_the_journal_is_told_where_it_ends(tmp_path):
    world = World(tmp_path)
    await world.open()
    await world.submit("job_a")
    await world.ended("job_a")
    last = (await world.manager.status())["journal"]["last"]
    assert (await world.manager.events(last + 5, 0, 10))["last"] == last
    assert (await world.manager.events(last, 0, 10))["last"] == last
    await world.manager.stop()
