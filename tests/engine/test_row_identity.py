"""A row is known by its dataset and its number: two jobs whose datasets number their rows alike never get each other's."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.engine.world import World

pytestmark = pytest.mark.asyncio


def rows_about(word: str) -> bytes:
    lines = ({"row": row, "messages": [{"role": "user", "content": f"{word}{row}"}], "item": {"answer": word}} for row in range(20))
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def test_rows_of_two_datasets_with_the_same_numbers_stay_apart(tmp_path):
    world, asked = World(tmp_path), {}
    await world.open()
    rollout = world.rollout.rollout

    async def noted(request):
        asked.setdefault(request.adapter.job, []).extend((row.row, row.messages[0]["content"], row.item["answer"]) for row in request.rows)
        return await rollout(request)

    world.rollout.rollout = noted
    for job, word in (("job_moss", "moss"), ("job_fern", "fern")):
        submission = world.submission(steps=2)
        submission["spec"]["dataset"]["train"] = world.blobs.put(rows_about(word)).model_dump()
        await world.manager.submit(job, submission)
    await asyncio.gather(world.ended("job_moss"), world.ended("job_fern"))

    for job, word in (("job_moss", "moss"), ("job_fern", "fern")):
        assert asked[job] == [(row, f"{word}{row}", word) for row, _, _ in asked[job]]
    assert [row for row, _, _ in asked["job_moss"]] == [row for row, _, _ in asked["job_fern"]]
    shown = await world.manager.rollouts("job_fern", 0, offset=0, limit=100)
    assert {t["prompt"] for t in shown["trajectories"]} == {f"fern{row}" for row, _, _ in asked["job_fern"][:4]}
    await world.manager.stop()
