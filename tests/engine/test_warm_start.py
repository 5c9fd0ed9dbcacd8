"""A job that begins where another of the same tenant has come to."""

from __future__ import annotations

import hashlib
import json

import pytest

from engine.audit import audit
from engine.errors import Invalid
from tests.engine.crashes import dies_at
from tests.engine.world import World

pytestmark = pytest.mark.asyncio


def warm(world: World, *, job: str = "job_a", version: int = 1, tenant: str = "ten_a", **changes):
    raw = world.submission(tenant=tenant, steps=1)
    raw["spec"] |= {"warm_start": {"job": job, "version": version}, **changes}
    return raw


async def source(tmp_path) -> World:
    world = World(tmp_path)
    await world.open()
    await world.submit("job_a", steps=2)
    await world.ended("job_a")
    return world


def files(world: World, job: str, version: int) -> dict[str, bytes]:
    return world.manager._store.snapshot(job, version)


async def refused(world: World, raw) -> dict[str, str]:
    with pytest.raises(Invalid) as refusal:
        await world.manager.submit("job_b", raw)
    assert world.kinds("job_b") == []
    return {problem["field"]: problem["message"] for problem in refusal.value.body()["error"]["problems"]}


async def test_version_0_has_the_other_jobs_adapter_and_a_fresh_optimizer(tmp_path):
    world = await source(tmp_path)
    await world.manager.submit("job_b", warm(world))
    await world.ended("job_b")
    theirs, ours = files(world, "job_a", 1), files(world, "job_b", 0)
    assert ours["adapter_model.safetensors"] == theirs["adapter_model.safetensors"]
    assert b"job_b@0" in ours["optimizer.safetensors"] and json.loads(ours["trainer.json"])["step"] == 0
    assert audit(world.root / "engine") == []
    await world.manager.stop()


async def test_its_first_step_trains_on_what_the_other_adapter_sampled(tmp_path):
    world = await source(tmp_path)
    await world.manager.submit("job_b", warm(world, version=1))
    await world.manager.submit("job_c", warm(world, version=2))
    await world.ended("job_b", "job_c")
    assert files(world, "job_b", 1)["adapter_model.safetensors"] != files(world, "job_c", 1)["adapter_model.safetensors"]
    await world.manager.stop()


async def test_the_lineage_is_recorded_for_good(tmp_path):
    world = await source(tmp_path)
    await world.manager.submit("job_b", warm(world))
    await world.ended("job_b")
    (accepted,) = world.events("job_b", "accepted")
    weights = files(world, "job_a", 1)["adapter_model.safetensors"]
    digest = hashlib.sha256(weights).hexdigest()
    assert accepted.data["warm_start"] == {"job": "job_a", "version": 1, "adapter_sha256": digest}
    await world.manager.stop()


async def test_a_strangers_job_does_not_exist(tmp_path):
    world = await source(tmp_path)
    strangers = await refused(world, warm(world, tenant="ten_b"))
    nobodys = await refused(world, warm(world, job="job_zzz"))
    assert strangers == {"warm_start.job": "there is no job job_a"}
    assert nobodys == {"warm_start.job": "there is no job job_zzz"}
    await world.manager.stop()


async def test_a_version_that_is_not_there_is_refused_by_name(tmp_path):
    world = await source(tmp_path)
    assert await refused(world, warm(world, version=3)) == {"warm_start.version": "job_a has no version 3; its latest is 2"}
    await world.manager.stop()


@pytest.mark.parametrize(
    ("lora", "field"),
    [
        ({"rank": 8, "target_modules": ["q_proj"]}, "lora.rank"),
        ({"rank": 4, "alpha": 8, "target_modules": ["q_proj"]}, "lora.alpha"),
        ({"rank": 4, "target_modules": ["q_proj", "v_proj"]}, "lora.target_modules"),
    ],
)
async def test_another_adapters_shape_is_refused_with_the_field_named(tmp_path, lora, field):
    world = await source(tmp_path)
    found = await refused(world, warm(world, lora=lora))
    assert set(found) == {field} and "as in job_a" in found[field]
    await world.manager.stop()


async def test_a_deleted_job_gives_nothing_any_more(tmp_path):
    world = await source(tmp_path)
    await world.manager.delete("job_a")
    assert await refused(world, warm(world)) == {"warm_start.job": "there is no job job_a"}
    await world.manager.stop()


async def test_a_source_that_goes_before_version_0_is_made_ends_the_job_with_its_reason(tmp_path):
    world = await source(tmp_path)
    gate = world.script.gate("fresh", "job_b")
    await world.manager.submit("job_b", warm(world))
    await world.manager.delete("job_a")
    gate.set()
    ended = (await world.ended("job_b"))["job_b"]
    assert (ended["state"], ended["attribution"]) == ("failed", "user") and "is gone" in ended["reason"]
    await world.manager.stop()


async def test_the_same_submission_again_is_no_second_job_even_when_the_source_is_gone(tmp_path):
    world = await source(tmp_path)
    raw = warm(world)
    await world.manager.submit("job_b", raw)
    await world.ended("job_b")
    await world.manager.delete("job_a")
    assert (await world.manager.submit("job_b", raw))["created"] is False
    await world.manager.stop()


@pytest.mark.parametrize("point", ["commit:staged", "commit:head:staged", "commit:done"])
async def test_a_manager_that_dies_while_it_makes_version_0_makes_the_same_one(tmp_path, point):
    world = await source(tmp_path)
    raw = warm(world)
    await world.manager.stop()
    manager = await world.open(crash_at=dies_at(point))
    submitting = world.manager.submit("job_b", raw)
    await submitting
    await world.until(lambda: manager.failed.done())
    await manager._driver.stop()
    await world.open()
    await world.ended("job_b")
    assert files(world, "job_b", 0)["adapter_model.safetensors"] == files(world, "job_a", 1)["adapter_model.safetensors"]
    assert audit(world.root / "engine") == []
    await world.manager.stop()
