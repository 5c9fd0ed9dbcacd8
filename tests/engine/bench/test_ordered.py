from __future__ import annotations

import asyncio
from types import SimpleNamespace

from engine.bench.ordered import all_trainings, one_after_another
from engine.bench.requests import TurnAsked
from engine.ports import AdapterRef

REF = AdapterRef(tenant="bench", job="a", version=1, load_id=1)


async def test_a_jobs_steps_follow_one_another():
    drawn: list[tuple[str, int]] = []

    class Sampler:
        async def draw(self, ref: AdapterRef, prompt_ids: list[int], new_tokens: int, *, seed: int) -> None:
            drawn.append(("began", prompt_ids[0]))
            await _others_go_first()
            drawn.append(("ended", prompt_ids[0]))

    await one_after_another(REF, [[[TurnAsked(prompt_ids=[step], new_tokens=1)]] * 2 for step in range(2)], Sampler())

    assert drawn == [(what, step) for step in range(2) for what in ("began", "began", "ended", "ended")]


def test_the_few_trainings_that_were_kept_stand_for_all_steps():
    jobs = [SimpleNamespace(trainings=["a1", "a2"], steps=[[]] * 3), SimpleNamespace(trainings=["b1"], steps=[[]] * 2)]

    assert all_trainings(jobs) == ["a1", "a2", "a1", "b1", "b1"]


async def _others_go_first() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
