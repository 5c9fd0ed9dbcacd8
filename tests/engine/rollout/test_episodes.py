from __future__ import annotations

import asyncio

import pytest

from engine.environment_spec import Latency, SingleTurn, StandIn, Tools
from engine.ports import AdapterRef, PortError
from engine.rollout.envs import wait_seconds
from engine.rollout.episodes import EpisodePlan, EpisodeTools, play
from engine.rollout.sampling import completion_seed
from engine.spec import NumericGrader
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
        "environment": SingleTurn(),
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
    latency = Latency(median_seconds=0.5, sigma=0.5, cap_seconds=1.0)
    seconds = sorted(wait_seconds(latency, seed) for seed in range(2000))

    assert seconds[1000] == pytest.approx(0.5, rel=0.1)
    assert seconds[-1] == 1.0
    assert wait_seconds(latency, 7) == wait_seconds(latency, 7)


class Waits:
    """Notes how long each wait would be; ``hold`` keeps them all."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.hold: asyncio.Event | None = None

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await (self.hold.wait() if self.hold else asyncio.sleep(0))


def stand_in(**changes) -> StandIn:
    return StandIn(**{"type": "stand_in", "latency": Latency(median_seconds=0.5), "observation": "found"} | changes)


def with_waits(sampler: FakeSampler, waits: Waits) -> EpisodeTools:
    return EpisodeTools(sampler=sampler, tokens=FakeTokens(), grading=FakeGrading(), clock=FakeClock(), sleep=waits)


def turn_by_turn(prompt: str, _) -> str:
    return f"t{prompt.count('[')}"


async def test_a_turn_is_prompted_with_all_ids_before_it_as_they_were():
    sampler = FakeSampler(turn_by_turn)
    (played,) = await play(plan(samples=1, environment=stand_in(tool_turns=2)), [row(5, "q")], with_waits(sampler, Waits()))

    assert [prompt for _, prompt, _ in sampler.asked] == ["q", "qt0[found]", "qt0[found]t1[found]"]
    assert FakeTokens().decode(played.trajectory.completion_ids) == "t0[found]t1[found]t2"


async def test_only_sampled_tokens_have_log_probabilities_and_are_marked_as_sampled():
    tools = with_waits(FakeSampler(turn_by_turn), Waits())
    (played,) = await play(plan(samples=1, environment=stand_in()), [row(5)], tools)
    t = played.trajectory

    assert "".join(".x"[yes] for yes in t.sampled_mask()) == "xx.......xx"
    assert (t.logprobs, t.sampled_tokens, t.added_tokens) == ([-0.5] * 4, 4, 7)
    assert [(turn.text, turn.observation) for turn in t.turns] == [("t0", "found"), ("t1", "")]


async def test_the_last_turn_is_what_is_graded():
    grading = FakeGrading()
    tools = EpisodeTools(sampler=FakeSampler(turn_by_turn), tokens=FakeTokens(), grading=grading, clock=FakeClock(), sleep=Waits())
    (played,) = await play(plan(samples=1, environment=stand_in()), [row(5)], tools)

    assert (grading.graded, played.trajectory.text) == (["t1"], "t1")


async def test_each_turn_has_a_seed_and_a_wait_of_its_own_that_a_new_attempt_repeats():
    first, again, waits, waits_again = FakeSampler(turn_by_turn), FakeSampler(turn_by_turn), Waits(), Waits()
    environment = stand_in(tool_turns=2)
    await play(plan(attempt=1, environment=environment), [row(5)], with_waits(first, waits))
    await play(plan(attempt=2, environment=environment), [row(5)], with_waits(again, waits_again))

    assert len({params.seed for _, _, params in first.asked}) == len(first.asked) == 6
    assert [params.seed for _, _, params in first.asked] == [params.seed for _, _, params in again.asked]
    assert len(set(waits.seconds)) == 4
    assert waits.seconds == waits_again.seconds


async def test_without_an_answer_turn_the_episode_ends_with_its_last_wait_and_adds_nothing_behind_it():
    sampler, waits = FakeSampler(), Waits()
    (played,) = await play(plan(samples=1, environment=stand_in(answer_turn=False)), [row(5)], with_waits(sampler, waits))

    assert (len(sampler.asked), len(waits.seconds)) == (1, 1)
    assert (played.trajectory.completion_ids, played.trajectory.turns) == ([52, 50], [])


async def test_a_long_observation_is_cut():
    tools = with_waits(FakeSampler(), Waits())
    (played,) = await play(plan(samples=1, environment=stand_in(max_observation_tokens=3)), [row(5)], tools)

    assert played.trajectory.added_tokens == 3


async def test_waits_of_all_completions_run_at_once_and_hold_up_no_sampling():
    sampler, waits = FakeSampler(turn_by_turn), Waits()
    waits.hold = asyncio.Event()
    running = asyncio.create_task(play(plan(environment=stand_in()), [row(1), row(2)], with_waits(sampler, waits)))
    while len(waits.seconds) < 4:
        await asyncio.sleep(0)

    assert (len(sampler.asked), sampler.active) == (4, 0)
    waits.hold.set()
    assert len(await running) == 4


async def test_the_time_of_turns_and_of_tools_is_kept_apart():
    (played,) = await play(plan(samples=1, environment=stand_in()), [row(5)], with_waits(FakeSampler(), Waits()))

    assert (played.sampling, played.acting[0], played.grading) == ([(1, 2), (4, 5)], (2, 3), (7, 8))


def calls_then_answers(prompt: str, _) -> str:
    return "42" if "</result>" in prompt else "<tool>add: 40 2</tool>"


async def add(argument: str) -> str:
    return str(sum(map(int, argument.split())))


def with_tools(**changes) -> dict:
    return {"samples": 1, "environment": Tools(type="tools", instructions="").model_copy(update=changes), "toolbox": {"add": add}}


async def test_a_tool_is_called_and_its_answer_is_read_in_its_frame():
    sampler, grading = FakeSampler(calls_then_answers), FakeGrading()
    (played,) = await play(plan(max_new_tokens=30, **with_tools()), [row(5, "q")], tools(sampler, grading))
    t = played.trajectory

    assert [prompt for _, prompt, _ in sampler.asked] == ["q", "q<tool>add: 40 2</tool><result>42</result>"]
    assert sampler.asked[0][2].stop == ("</tool>",)
    assert [(c.tool, c.argument, c.answer, c.error) for c in t.tool_calls] == [("add", "40 2", "42", None)]
    assert (t.reward, t.finish_reason) == (1.0, "stop")


async def test_a_grader_gets_the_calls_and_whose_they_are():
    grading = FakeGrading()
    await play(plan(max_new_tokens=30, **with_tools()), [row(5)], tools(FakeSampler(calls_then_answers), grading))
    (case,) = grading.cases

    assert (case["owner"], case["row"]) == ("alice/a", 5)
    assert [(call["tool"], call["answer"]) for call in case["tool_calls"]] == [("add", "42")]


async def test_the_instructions_are_part_of_the_prompt_and_of_its_limit():
    sampler, told = FakeSampler(), Tools(type="tools", instructions="Use tools. ")
    await play(plan(samples=1, environment=told), [row(5, "q")], tools(sampler))

    assert sampler.asked[0][1] == "Use tools. q"
    with pytest.raises(PortError, match="a prompt of 17 tokens"):
        await play(plan(samples=1, environment=told), [row(5, "q" * 6)], tools(sampler))


async def test_an_episode_out_of_tokens_ends_before_it_reads_what_it_could_not_answer():
    sampler = FakeSampler(calls_then_answers)
    (played,) = await play(plan(max_new_tokens=30, **with_tools(max_tokens=40)), [row(5)], tools(sampler))
    t = played.trajectory

    assert (len(sampler.asked), t.finish_reason, t.added_tokens) == (1, "length", 0)
    assert [call.answer for call in t.tool_calls] == ["42"]


async def test_a_turn_gets_only_the_tokens_that_are_left():
    sampler = FakeSampler(calls_then_answers)
    await play(plan(max_new_tokens=30, **with_tools(max_tokens=43)), [row(5)], tools(sampler))

    assert [params.max_new_tokens for _, _, params in sampler.asked] == [30, 43 - 22 - 19]


async def test_a_model_that_only_calls_is_stopped_and_its_last_call_is_counted():
    sampler = FakeSampler(lambda *_: "<tool>add: 1 1</tool>")
    (played,) = await play(plan(max_new_tokens=30, **with_tools(max_calls=2)), [row(5)], tools(sampler))

    assert [call.error for call in played.trajectory.tool_calls] == [None, None, "too_many_calls"]
    assert (played.trajectory.finish_reason, len(sampler.asked)) == ("calls", 3)


async def test_calls_of_all_completions_run_at_once_and_hold_up_no_sampling():
    sampler, all_called, calls = FakeSampler(calls_then_answers), asyncio.Event(), []

    async def slow(argument: str) -> str:
        calls.append(argument)
        await all_called.wait()
        return "42"

    environment = with_tools()["environment"]
    running = asyncio.create_task(
        play(plan(samples=4, max_new_tokens=30, environment=environment, toolbox={"add": slow}), [row(1), row(2)], tools(sampler))
    )
    while len(calls) < 8:
        await asyncio.sleep(0)
    assert (len(sampler.asked), sampler.active) == (8, 0)
    all_called.set()

    assert {p.trajectory.finish_reason for p in await running} == {"stop"}


async def test_a_model_that_calls_on_after_the_time_for_calls_is_stopped():
    sampler = FakeSampler(lambda *_: "<tool>add: 1 1</tool>")
    changes = with_tools(max_seconds=0.5, max_calls=9)  # the clock moves by a second at each look
    (played,) = await play(plan(max_new_tokens=30, **changes), [row(5)], tools(sampler))

    assert [call.error for call in played.trajectory.tool_calls] == [None, "timeout", "timeout"]
    assert played.trajectory.finish_reason == "seconds"
