"""A probe's forecast against the first steps of the job that it was made for, on the real engine with the bundled model."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

import pytest

from engine.blobs import BlobStore
from engine.spec import Submission
from engine.workload import dataset_of
from tests.engine.engines import TestEngine, running_engine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

STEPS, ROWS = 5, 320


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory):
    with running_engine(tmp_path_factory.mktemp("state"), start_deadline_seconds=200) as engine:
        yield engine


def submission(engine: TestEngine, task: str) -> Submission:
    spec: dict[str, Any] = {
        "base_model": engine.settings.model,
        "dataset": dataset_of(BlobStore(engine.settings.blobs_dir), task, rows=400, seed=3),
        "grader": {"type": "string_check"},
        "rollout": {"prompts_per_step": 64, "group_size": 8, "max_prompt_tokens": 24, "max_new_tokens": 8},
        "train": {"steps": STEPS},
        "seed": 1,
    }
    return Submission(tenant="tenant", submitted_at=datetime.now(UTC), spec=spec)


async def probed(client: Any, name: str, order: Submission) -> dict[str, Any]:
    await client.probe(name, tenant=order.tenant, spec=order.spec, rows=ROWS)
    while (answer := await client.probe_state(name))["state"] in ("waiting", "running"):
        await asyncio.sleep(0.1)
    assert answer["state"] == "done", answer
    return answer["result"]


async def told_and_seen(engine: TestEngine, task: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The forecast, and the data of the job's steps."""
    order = submission(engine, task)
    async with engine.client() as client:
        cursor = await client.last_offset()
        forecast = await probed(client, f"probe-{task}", order)
        await client.submit(f"job-{task}", order)
        events = [event async for event in client.follow([f"job-{task}"], after=cursor)]
    return forecast, [event["data"] for event in events if event["kind"] == "step"]


def test_the_first_steps_are_as_the_probe_foretold(engine):
    forecast, steps = engine.run(told_and_seen(engine, "add"), seconds=150)
    rollouts = [step["rollout"] for step in steps]
    silent = sum(step["zero_signal_groups"] for step in steps) / sum(rollout["groups"] for rollout in rollouts)
    length = fmean(rollout["length_mean"] for rollout in rollouts)

    assert len(steps) == STEPS
    assert forecast["zero_signal"]["share"] == pytest.approx(silent, abs=0.10)
    assert forecast["lengths"]["mean"] == pytest.approx(length, rel=0.15)
    assert forecast["pass_rate"]["low"] - 0.1 <= rollouts[0]["reward_mean"] <= forecast["pass_rate"]["high"] + 0.1
    assert forecast["step"]["tokens"]["prefill"] == pytest.approx(steps[0]["tokens"]["prefill"], rel=0.1)
    assert forecast["step"]["tokens"]["sampled"] == pytest.approx(steps[0]["tokens"]["sampled"], rel=0.15)
