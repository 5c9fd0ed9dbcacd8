from __future__ import annotations

import pytest

from engine.audit import audit
from engine.trajectory import decode, encode
from tests.engine.world import World

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def engine(tmp_path):
    """The directory of an engine on which two jobs have run, one of them through a lost attempt."""
    world = World(tmp_path)
    await world.open()
    world.script.fail("rollout", "job_a", 1)
    await world.submit("job_a", steps=3, with_eval=True)
    await world.submit("job_b", steps=2)
    await world.ended("job_a", "job_b")
    await world.manager.stop()
    return tmp_path / "engine"


async def test_an_undisturbed_run_keeps_every_promise(engine):
    assert audit(engine) == []


async def test_an_engine_that_has_not_begun_keeps_every_promise(tmp_path):
    assert audit(tmp_path) == []


def rewrite_journal(engine, change) -> None:
    [segment] = (engine / "journal").glob("*.jsonl")
    lines = segment.read_text().splitlines(keepends=True)
    segment.write_text("".join(change(lines)))


async def test_a_step_that_is_told_twice_is_found(engine):
    def double(lines):
        return [twice for line in lines for twice in ([line, line] if '"job":"job_b"' in line and '"kind":"step"' in line else [line])]

    rewrite_journal(engine, double)
    problems = audit(engine)
    assert any("I1: committed 1 from 0 at version 1" in problem for problem in problems)
    assert any("I10" in problem for problem in problems)


async def test_a_missing_step_is_found(engine):
    rewrite_journal(engine, lambda lines: [line for line in lines if '"kind":"step"' not in line or '"job":"job_a"' in line])
    assert any("job_b: I1: HEAD is 2, the journal has 0 steps" in problem for problem in audit(engine))


async def test_a_batch_of_another_version_is_found(engine):
    folder = engine / "jobs/job_b/rollouts"
    (folder / "1/1.msgpack").write_bytes((folder / "0/1.msgpack").read_bytes())
    assert any("job_b: I2: batch of ('job_b', 0, 1)" in problem for problem in audit(engine))


async def test_a_batch_with_a_missing_completion_is_found(engine):
    path = engine / "jobs/job_b/rollouts/0/1.msgpack"
    batch = decode(path.read_bytes())
    path.write_bytes(encode(type(batch)(**{name: getattr(batch, name) for name in batch.__struct_fields__} | {"trajectories": []})))
    assert "job_b: I2: step 1 certifies 8 of 8" in audit(engine)


async def test_changed_weights_and_a_missing_optimizer_are_found(engine):
    (engine / "jobs/job_a/v1/adapter_model.safetensors").write_bytes(b"planted")
    (engine / "jobs/job_a/v2/optimizer.safetensors").unlink()
    problems = audit(engine)
    assert len([problem for problem in problems if "job_a: I3" in problem]) == 2


async def test_leftovers_are_found(engine):
    (engine / "jobs/job_a/v4.staging").mkdir()
    (engine / "jobs/job_b/v3").mkdir()
    (engine / "jobs/job_x").mkdir()
    assert sorted(problem for problem in audit(engine) if problem.startswith("I8")) == [
        "I8: job_x has no history",
        "I8: jobs/job_a/v4.staging is left over",
        "I8: jobs/job_b/v3 is left over",
    ]
