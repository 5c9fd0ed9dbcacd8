"""Evaluation, resampling and warm starts on real parts: what is promised of versions must hold for what a model really says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from engine.blobs import BlobStore
from engine.spec import Submission
from engine.workload import dataset_of
from tests.engine.engines import TestEngine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(500)]
STEPS, ROWS = 4, 48


def submission(engine: TestEngine, *, warm_start: dict[str, Any] | None = None, **rollout: Any) -> Submission:
    spec = {
        "base_model": engine.settings.model,
        "dataset": dataset_of(BlobStore(engine.settings.blobs_dir), "add", rows=96, eval_rows=ROWS, seed=3),
        "grader": {"type": "string_check"},
        "rollout": {"prompts_per_step": 8, "group_size": 4, "max_prompt_tokens": 24, "max_new_tokens": 8, **rollout},
        "lora": {"rank": 8, "alpha": 16},
        "train": {"steps": STEPS, "learning_rate": 3e-3},
        "eval": {"every": STEPS, "max_rows": ROWS},
        "warm_start": warm_start,
        "seed": 5,
    }
    return Submission(tenant="evaluated", submitted_at=datetime.now(UTC), spec=spec)


async def played(engine: TestEngine, job: str, wanted: Submission) -> list[dict[str, Any]]:
    async with engine.client() as client:
        cursor = await client.last_offset()
        await client.submit(job, wanted)
        return [event async for event in client.follow([job], after=cursor)]


async def rows_of(engine: TestEngine, job: str, version: int) -> dict[int, str]:
    """A digest of the tokens of each row's answer."""
    async with engine.client() as client:
        found = await client.evaluation(job, version, against=version)
    return {row["row"]: row["after"]["sha256"] for row in found["rows"]}


@pytest.fixture(scope="module")
def events(engine: TestEngine) -> list[dict[str, Any]]:
    return engine.run(played(engine, "evaluated-job", submission(engine, max_resamples=3)))


def data(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["kind"] == kind]


def test_a_job_that_learns_is_found_better_row_by_row(engine, events):
    first, last = data(events, "eval")
    compared = last["comparison"]
    assert (first["rows"], compared["rows"]) == (ROWS, ROWS)
    assert compared["difference"] == pytest.approx(last["reward_mean"] - first["reward_mean"])
    assert compared["low"] <= compared["difference"] <= compared["high"]
    answers = [engine.run(rows_of(engine, "evaluated-job", version)) for version in (0, STEPS)]
    assert answers[0].keys() == answers[1].keys() and answers[0] != answers[1]


def test_silent_groups_were_resampled_counted_and_proven(engine, events):
    steps = data(events, "step")
    assert sum(step["rollout"]["resample_rounds"] for step in steps) > 0
    for step in steps:
        rollout, certificate = step["rollout"], step["certificate"]
        assert certificate["on_policy"] == certificate["completions"] == 32
        assert rollout["completions"] == certificate.get("sampled", 32) == 32 + 4 * rollout["groups_dropped"]
        assert step["tokens"]["sampled"] == rollout["sampled_tokens"]
        # Only groups without signal are dropped, and none of them is trained on while others are there.
        assert step["zero_signal_groups"] == 0 or rollout["resample_rounds"] == 3
    assert engine.violations() == []


def test_a_warm_start_answers_like_the_version_it_begins_with(engine, events):
    origin = {"job": "evaluated-job", "version": STEPS}
    told = engine.run(played(engine, "warm-job", submission(engine, warm_start=origin)))
    assert data(told, "ended")[0]["state"] == "succeeded"
    assert engine.run(rows_of(engine, "warm-job", 0)) == engine.run(rows_of(engine, "evaluated-job", STEPS))
    assert data(told, "eval")[0]["reward_mean"] == data(events, "eval")[-1]["reward_mean"]
    assert data(told, "accepted")[0]["warm_start"] == {**origin, "adapter_sha256": data(events, "step")[-1]["adapter_sha256"]}
    assert engine.violations() == []
