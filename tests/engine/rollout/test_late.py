from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.rewards.graders import GradeResult, invalid
from engine.rollout.late import CountedGrading, added
from engine.rollout.worker import RolloutWorker
from tests.engine.rollout.fakes import FakeClock, FakeGrading, FakeSampler, FakeTokens, rollout_request

pytestmark = pytest.mark.asyncio


class Scripted:
    def __init__(self, *results: GradeResult):
        self.results = list(results)

    async def grade(self, *_: Any, **__: Any) -> GradeResult:
        return self.results.pop(0)


async def test_calls_that_ended_at_their_deadline_are_counted_with_the_last_reason():
    late = [invalid("row 1: slow", kind="timeout"), invalid("row 2: killed", kind="hard_timeout")]
    counted = CountedGrading(Scripted(GradeResult(reward=1.0), invalid("broke", kind="crash"), *late), completions=8)
    for _ in range(4):
        await counted.grade(None, "", {})
    assert counted.told() == {"completions": 8, "graded": 4, "late": 2, "reason": "row 2: killed"}


async def test_parts_of_a_batch_add_up():
    parts = [{"completions": 4, "graded": 1, "late": 1, "reason": "slow"}, {"completions": 4, "graded": 3, "late": 0, "reason": ""}]
    assert added(parts) == {"completions": 8, "graded": 4, "late": 1, "reason": "slow"}


async def test_a_worker_tells_of_the_gradings_of_each_rollout_while_it_runs_and_no_longer():
    grading = FakeGrading()
    grading.hold["42"] = asyncio.Event()
    workers = RolloutWorker(sampler=FakeSampler(), tokens=FakeTokens(), grading=grading, clock=FakeClock())
    rollouts = [asyncio.create_task(workers.rollout(rollout_request(job))) for job in "ab"]
    while len((await workers.stats())["gradings"]) < 2:
        await asyncio.sleep(0)
    nothing_yet = {"completions": 4, "graded": 0, "late": 0, "reason": ""}
    assert (await workers.stats())["gradings"] == {"a": nothing_yet, "b": nothing_yet}
    grading.hold["42"].set()
    await asyncio.gather(*rollouts)
    assert (await workers.stats())["gradings"] == {}
