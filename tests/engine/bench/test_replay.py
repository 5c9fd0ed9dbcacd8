from __future__ import annotations

import pytest

from engine.bench.replay import play
from engine.bench.requests import TurnAsked
from engine.ports import AdapterRef

REF = AdapterRef(tenant="bench", job="a", version=1, load_id=1)


class FakeSampler:
    def __init__(self) -> None:
        self.drawn: list[tuple[str, list[int], int]] = []

    async def draw(self, ref: AdapterRef, prompt_ids: list[int], new_tokens: int, *, seed: int) -> None:
        self.drawn.append((ref.job, prompt_ids, new_tokens))


def episode(*prompts: list[int], tool_seconds: float) -> list[TurnAsked]:
    return [TurnAsked(prompt_ids=prompt, new_tokens=len(prompt) + 1, tool_seconds=tool_seconds) for prompt in prompts]


async def test_the_turns_of_an_episode_follow_one_another_and_tools_are_not_waited_for():
    sampler = FakeSampler()

    await play([(REF, [episode([1], [1, 2], tool_seconds=1e6)])], sampler, tools=False)

    assert sampler.drawn == [("a", [1], 2), ("a", [1, 2], 3)]


async def test_a_job_alone_waits_for_its_tools():
    seconds = await play([(REF, [episode([1], [2], tool_seconds=0.01)])], FakeSampler(), tools=True)

    assert seconds >= 0.02


@pytest.mark.parametrize("tools", [True, False])
async def test_all_episodes_of_all_batches_are_played(tools):
    sampler = FakeSampler()

    await play([(REF, [episode([1], tool_seconds=0.0)] * 3), (REF, [episode([2], tool_seconds=0.0)] * 2)], sampler, tools=tools)

    assert sorted(prompt for _, prompt, _ in sampler.drawn) == [[1], [1], [1], [2], [2]]
