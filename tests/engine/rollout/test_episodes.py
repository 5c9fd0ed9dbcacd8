from __future__ import annotations

import asyncio

import pytest

from engine.ports import AdapterRef, PortError
from engine.rollout.episodes import EpisodePlan, EpisodeTools, play, tool_seconds
from engine.rollout.sampling import completion_seed
from engine.spec import NumericGrader, ToolWait
from tests.engine.rollout.fakes import FakeClock, FakeGrading, FakeSampler, FakeTokens, row


def plan(**changes) -> EpisodePlan:
    values = {
        "adapter": AdapterRef(tenant="alice", job="a", version=3, load_id=17),
        "attempt": 2,
        "grader": NumericGrader(type="numeric", name="right"),
        "samples": 2,
        "seed": 9,
        "max_prompt_tokens": 16,
        "max_new_tokens": 8,
        "temperature": 0.7,
        "priority": 0,
    }
    return EpisodePlan(**values | changes)


def tools(sampler: FakeSampler, grading: FakeGrading | None = None) -> EpisodeTools:
    return EpisodeTools(sampler=sampler, tokens=FakeTokens(), grading=grading or FakeGrading(), clock=FakeClock())


async def test_the_batch_is_ordered_by_row_position_and_sample():
    played = await play(plan(), [row(5), row(2)], tools(FakeSampler()))

    assert [(p.trajectory.row, p.trajectory.sample) for p in played] == [(5, 0), (5, 1), (2, 0), (2, 1)]


async def test_a_trajectory_carries_all_that_training_needs():
    (played,) = await play(plan(samples=1), [row(5, "6*7=")], tools(FakeSampler(lambda *_: "42")))
    t = played.trajectory

    assert (t.job, t.policy_version, t.attempt, t.load_id) == ("a", 3, 2, 17)
    assert (t.prompt_ids, t.completion_ids, t.logprobs) == ([54, 42, 55, 61], [52, 50], [-0.5, -0.5])
    assert (t.text, t.finish_reason, t.reward, t.components, t.invalid) == ("42", "stop", 1.0, {"right": 1.0}, None)


async def test_each_completion_has_a_seed_of_its_own_that_a_new_attempt_repeats():
    first, again = FakeSampler(), FakeSampler()
    await play(plan(attempt=1), [row(5), row(2)], tools(first))
    await play(plan(attempt=2), [row(5), row(2)], tools(again))
    seeds = [params.seed for _, _, params in first.asked]

    assert len(set(seeds)) == 4
    assert seeds == [params.seed for _, _, params in again.asked]
    assert completion_seed(9, 3, 5, 0) != completion_seed(9, 4, 5, 0)


async def test_a_completion_is_graded_while_others_are_still_sampled():
    sampler, grading = FakeSampler(lambda prompt, _: prompt), FakeGrading()
    slow = asyncio.Event()
    original = sampler.sample

    async def sample(adapter, prompt_ids, params):
        if chr(prompt_ids[0]) == "s":
            await slow.wait()
        return await original(adapter, prompt_ids, params)

    sampler.sample = sample
    running = asyncio.create_task(play(plan(samples=1), [row(1, "slow"), row(2, "fast")], tools(sampler, grading)))
    while not grading.graded:
        await asyncio.sleep(0)

    assert grading.graded == ["fast"]
    slow.set()
    await running


async def test_a_grading_that_fails_is_invalid_and_never_zero():
    (played,) = await play(plan(samples=1), [row(5, answer="many")], tools(FakeSampler()))

    assert (played.trajectory.reward, played.trajectory.components) == (None, {"right": None})
    assert "holds no number" in played.trajectory.invalid


async def test_a_prompt_that_is_too_long_names_the_row_and_is_the_users_fault():
    sampler = FakeSampler()
    with pytest.raises(PortError, match=r"row 8 has a prompt of 17 tokens; rollout.max_prompt_tokens allows 16") as caught:
        await play(plan(), [row(7), row(8, "x" * 17)], tools(sampler))

    assert caught.value.attribution == "user"
    assert sampler.asked == []


async def test_one_failing_completion_ends_the_batch_with_its_own_error_and_leaves_nothing_running():
    sampler = FakeSampler()
    sampler.hold = asyncio.Event()
    original = sampler.sample

    async def sample(adapter, prompt_ids, params):
        if chr(prompt_ids[0]) == "!":
            raise PortError("the sampler broke")
        return await original(adapter, prompt_ids, params)

    sampler.sample = sample
    with pytest.raises(PortError, match="the sampler broke"):
        await play(plan(), [row(1), row(2, "!")], tools(sampler))

    assert sampler.active == 0


async def test_log_probabilities_must_match_the_tokens():
    sampler = FakeSampler()
    sampler.logprob_count = 1

    with pytest.raises(PortError, match="1 log-probabilities for 2 tokens"):
        await play(plan(), [row(1)], tools(sampler))


def test_a_tool_s_time_is_lognormal_capped_and_the_same_for_the_same_seed():
    wait = ToolWait(median_seconds=0.5, sigma=0.5, cap_seconds=1.0)
    seconds = sorted(tool_seconds(wait, seed) for seed in range(2000))

    assert seconds[1000] == pytest.approx(0.5, rel=0.1)
    assert seconds[-1] == 1.0
    assert tool_seconds(wait, 7) == tool_seconds(wait, 7)


async def test_a_tool_is_waited_for_between_sampling_and_grading():
    (played,) = await play(plan(samples=1, tool_wait=ToolWait(median_seconds=0.001, sigma=0)), [row(5)], tools(FakeSampler()))

    assert played.sampled_at < played.acted_at < played.graded_at
