"""The fakes keep the contract of the ports, and refuse what the real ports must never be sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.ports import Aborted, AdapterRef, EvalRequest, PortError, RolloutRequest, Row, TrainRequest
from engine.sim.fakes import FakeRolloutPort, FakeTrainPort, fake_snapshot
from engine.spec import JobSpec, parse_job
from engine.trajectory import StaleBatch, decode

HASH = "0" * 64


def spec() -> JobSpec:
    return parse_job(
        {
            "base_model": "tiny-math",
            "dataset": {"version": "d1", "train": {"sha256": HASH, "bytes": 1}, "train_rows": 10},
            "grader": {"type": "string_check"},
            "rollout": {"prompts_per_step": 2, "group_size": 4},
        }
    )


def request(job: str = "a", version: int = 0, **changes: Any) -> RolloutRequest:
    fields = {
        "adapter": AdapterRef(tenant="t", job=job, version=version, load_id=version + 1),
        "attempt": 1,
        "spec": spec(),
        "rows": [Row(row=r, messages=[], item={}) for r in (3, 5)],
        "seed": 7,
        "adapter_files": fake_snapshot(job=job, version=version, digest="d"),
        "deadline_seconds": 60.0,
    }
    return RolloutRequest(**{**fields, **changes})


def train_request(batch: bytes, version: int = 0, **changes: Any) -> TrainRequest:
    snapshot = fake_snapshot(job="a", version=version, digest="d")
    fields = {"job": "a", "version": version, "attempt": 1, "spec": spec(), "snapshot": snapshot, "batch": batch, "deadline_seconds": 60.0}
    return TrainRequest(**{**fields, **changes})


def rolled_out(**changes: Any) -> bytes:
    return asyncio.run(FakeRolloutPort().rollout(request(**changes))).batch


def test_a_rollout_answers_with_every_completion_of_every_row_in_order():
    batch = decode(rolled_out())
    assert [(t.row, t.sample) for t in batch.trajectories] == [(row, sample) for row in (3, 5) for sample in range(4)]


def test_the_same_request_gives_the_same_bytes():
    assert rolled_out() == rolled_out()


def test_another_seed_gives_other_completions():
    assert rolled_out() != rolled_out(seed=8)


def test_it_refuses_the_adapter_of_another_version():
    stale = fake_snapshot(job="a", version=1, digest="d")
    with pytest.raises(AssertionError, match="asked for a@2"):
        rolled_out(version=2, adapter_files=stale)


def test_it_refuses_a_load_id_that_named_another_adapter():
    async def scene() -> None:
        port = FakeRolloutPort()
        await port.rollout(request())
        await port.rollout(request(version=1, adapter=AdapterRef(tenant="t", job="a", version=1, load_id=1)))

    with pytest.raises(AssertionError, match="load id 1 of a@0"):
        asyncio.run(scene())


def test_it_refuses_two_rollouts_of_one_job_at_once():
    async def scene() -> None:
        port = FakeRolloutPort()
        await asyncio.gather(port.rollout(request()), port.rollout(request()))

    with pytest.raises(AssertionError, match="twice at once"):
        asyncio.run(scene())


def test_a_scripted_failure_happens_as_often_as_scripted():
    async def scene() -> bytes:
        port = FakeRolloutPort()
        port.script.fail("rollout", "a", 0, error=PortError("worker died"))
        with pytest.raises(PortError, match="worker died"):
            await port.rollout(request())
        return (await port.rollout(request())).batch

    assert asyncio.run(scene())


def test_a_gate_holds_a_rollout_until_it_is_opened():
    async def scene() -> bool:
        port = FakeRolloutPort()
        gate = port.script.gate("rollout", "a")
        task = asyncio.ensure_future(port.rollout(request()))
        await asyncio.sleep(0)
        held = port.running == ["a"]
        gate.set()
        await task
        return held and port.running == []

    assert asyncio.run(scene())


def test_an_abort_ends_the_held_calls_of_that_job_only():
    async def scene() -> tuple[bool, bool]:
        port = FakeRolloutPort()
        port.script.gate("rollout", "a")
        gate = port.script.gate("rollout", "b")
        adapter_b = AdapterRef(tenant="t", job="b", version=0, load_id=2)
        a = asyncio.ensure_future(port.rollout(request()))
        b = asyncio.ensure_future(port.rollout(request(job="b", adapter=adapter_b)))
        await asyncio.sleep(0)
        await port.abort("a")
        with pytest.raises(Aborted):
            await a
        gate.set()
        await b
        return a.done(), b.exception() is None

    assert asyncio.run(scene()) == (True, True)


def test_an_abort_does_not_touch_the_next_attempt():
    async def scene() -> bytes:
        port = FakeRolloutPort()
        await port.rollout(request())
        await port.abort("a")
        return (await port.rollout(request(attempt=2))).batch

    assert decode(asyncio.run(scene())).attempt == 2


def test_unloading_keeps_only_the_version_that_is_kept():
    async def scene() -> dict[str, set[int]]:
        port = FakeRolloutPort()
        await port.rollout(request())
        await port.rollout(request(version=1))
        await port.unload("a", keep_version=1)
        await port.unload("never seen")
        return port.loaded

    assert asyncio.run(scene()) == {"a": {1}}


def test_an_evaluation_reports_on_its_version():
    ask = request(version=3)
    evaluation = EvalRequest(adapter=ask.adapter, spec=ask.spec, rows=ask.rows, adapter_files=ask.adapter_files, deadline_seconds=1.0)
    assert asyncio.run(FakeRolloutPort().evaluate(evaluation)).data["version"] == 3


def test_training_is_a_pure_function_of_its_request():
    ask = train_request(rolled_out())
    first, second = (asyncio.run(FakeTrainPort().step(ask)) for _ in range(2))
    assert first == second


def test_training_depends_on_every_byte_of_the_snapshot_and_the_batch():
    batch = rolled_out()
    other = {**fake_snapshot(job="a", version=0, digest="d"), "optimizer.safetensors": b"leaked"}
    steps = [train_request(batch), train_request(batch, snapshot=other), train_request(rolled_out(seed=8))]
    weights = {asyncio.run(FakeTrainPort().step(ask)).snapshot["adapter_model.safetensors"] for ask in steps}
    assert len(weights) == 3


def test_training_names_the_next_version():
    result = asyncio.run(FakeTrainPort().step(train_request(rolled_out())))
    assert result.snapshot["adapter_model.safetensors"].startswith(b"weights a@1:")


def test_training_refuses_a_batch_of_another_version():
    with pytest.raises(StaleBatch):
        asyncio.run(FakeTrainPort().step(train_request(rolled_out(), version=1)))


def test_version_zero_depends_on_the_job_and_the_seed():
    fresh = asyncio.run(FakeTrainPort().fresh("a", spec()))
    assert fresh != asyncio.run(FakeTrainPort().fresh("a", spec().model_copy(update={"seed": 1})))
