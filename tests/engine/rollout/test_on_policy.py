"""Real sampler, real trainer, a learning rate of 0: what both say of the same tokens differs by rounding only, and a planted fault shows.

The stated floor of the mismatch-KL in float32 is 1e-5 nats per token; what is wrong exceeds it tenfold.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

from engine.ports import TrainRequest
from engine.rewards.pool import GraderPool
from engine.spec import JobSpec, parse_job
from tests.engine.rollout.fakes import rollout_request, row
from tests.engine.train.recorded import make_batch, make_request

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]

FLOOR = 1e-5
STEPS = 5
JOB = "a"
ADAPTER = "adapter_model.safetensors"
ADAPTER_FILES = (ADAPTER, "adapter_config.json")
OTHER_TEMPERATURE = {0.7: 1.0, 1.0: 0.7}


def changed(spec: JobSpec, *, temperature: float, learning_rate: float = 0.0) -> JobSpec:
    raw = spec.model_dump(mode="json")
    raw["rollout"] |= {"temperature": temperature, "max_new_tokens": 16, "max_prompt_tokens": 32, "group_size": 4, "prompts_per_step": 2}
    raw["train"] |= {"learning_rate": learning_rate}
    return parse_job(raw)


async def rolled_out(sampler, base, files, spec: JobSpec, version: int) -> bytes:
    """An encoded batch with made-up rewards: what is graded does not matter here, but a step without signal would train nothing."""
    import msgspec

    from engine.rollout.tokens import ModelTokens
    from engine.rollout.worker import RolloutWorker
    from engine.trajectory import decode, encode

    worker = RolloutWorker(sampler=sampler, tokens=ModelTokens.load(base.path), grading=GraderPool())
    request = rollout_request(JOB, version=version, rows=[row(3, "1+2="), row(9, "max 3 4=")])
    batch = decode((await worker.rollout(dataclasses.replace(request, spec=spec, adapter_files=files))).batch)
    graded = [msgspec.structs.replace(t, reward=float(t.sample % 2)) for t in batch.trajectories]
    return encode(msgspec.structs.replace(batch, trajectories=graded))


def learned(worker, spec: JobSpec, snapshot, version: int):
    """``snapshot`` one real step further."""
    batch = make_batch(JOB, version=version)
    return worker.step(make_request(JOB, spec, snapshot, batch, version=version)).snapshot


def at_version(snapshot, version: int):
    return snapshot | {"trainer.json": json.dumps({**json.loads(snapshot["trainer.json"]), "version": version}).encode()}


@pytest.mark.parametrize("temperature", [0.7, 1.0])
async def test_without_learning_sampler_and_trainer_agree_and_a_planted_fault_shows(sampler, base, one_rank, temperature):
    from engine.train.worker import TrainWorker

    worker, job = TrainWorker(base.path), rollout_request(JOB).spec
    still, learning, wrong = (
        changed(job, temperature=temperature),
        changed(job, temperature=temperature, learning_rate=1e-2),
        changed(job, temperature=OTHER_TEMPERATURE[temperature]),
    )
    first = snapshot = learned(worker, learning, worker.fresh(JOB, job), 0)
    later = learned(worker, learning, snapshot, 1)
    for version in range(1, 1 + STEPS):
        batch = await rolled_out(sampler, base, {name: snapshot[name] for name in ADAPTER_FILES}, still, version)
        request = TrainRequest(
            job=JOB, version=version, attempt=1, spec=still, snapshot=at_version(snapshot, version), batch=batch, deadline_seconds=60.0
        )
        result = worker.step(request)
        assert result.metrics["mismatch_kl"] < FLOOR
        assert result.metrics["max_ratio"] < 1.01
        assert result.metrics["grad_norm"] > 0
        assert result.snapshot[ADAPTER] == first[ADAPTER]
        snapshot = result.snapshot
    planted = {
        "temperature": dataclasses.replace(request, spec=wrong),
        "stale adapter": dataclasses.replace(request, snapshot=at_version(later, STEPS)),
    }
    for fault, asked in planted.items():
        assert worker.step(asked).metrics["mismatch_kl"] > 10 * FLOOR, fault
    await sampler.unload(JOB)
