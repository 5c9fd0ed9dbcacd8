from __future__ import annotations

import pytest

from engine.rollout.sampling import SampleParams
from engine.rollout.spread import SECONDS, joined, parts
from engine.rollout.worker import RolloutWorker
from engine.trajectory import decode
from tests.engine.rollout.fakes import FakeClock, FakeGrading, FakeSampler, FakeTokens, rollout_request, row


def by_seed(prompt: str, params: SampleParams) -> str:
    return str(42 + params.seed % 2)


def worker() -> RolloutWorker:
    return RolloutWorker(sampler=FakeSampler(says=by_seed), tokens=FakeTokens(), grading=FakeGrading(), clock=FakeClock())


def request(prompts: int):
    return rollout_request(rows=[row(number) for number in range(prompts)])


@pytest.mark.parametrize(("prompts", "replicas", "sizes"), [(7, 3, [2, 3, 2]), (2, 5, [1, 1]), (4, 1, [4])])
def test_prompts_are_spread_evenly_and_in_order(prompts, replicas, sizes):
    whole = request(prompts)
    shares = parts(whole, replicas)
    assert [len(share.rows) for share in shares] == sizes
    assert [r for share in shares for r in share.rows] == whole.rows


@pytest.mark.parametrize("replicas", [2, 3, 5])
async def test_several_replicas_make_the_batch_that_one_would_have_made(replicas):
    alone = await worker().rollout(request(5))
    together = joined([await worker().rollout(share) for share in parts(request(5), replicas)])

    assert decode(together.batch).trajectories == decode(alone.batch).trajectories
    assert {name: value for name, value in together.summary.items() if name not in SECONDS} == {
        name: value for name, value in alone.summary.items() if name not in SECONDS
    }
    assert decode(together.batch).summary == together.summary


async def test_a_spread_rollout_took_as_long_as_its_slowest_part():
    results = [await worker().rollout(share) for share in parts(request(4), 2)]
    slowest = max(results, key=lambda result: sum(result.summary[name] for name in SECONDS))
    assert [joined(results).summary[name] for name in SECONDS] == [slowest.summary[name] for name in SECONDS]
