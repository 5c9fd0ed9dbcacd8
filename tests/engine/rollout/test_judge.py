from __future__ import annotations

import asyncio
import json

import pytest

from engine.grader_spec import SamplingParams, parse_grader
from engine.ports import PortError
from engine.rewards.graders import GradingFailed
from engine.rewards.pool import GraderPool
from engine.rollout.judge import BaseJudge
from engine.rollout.sampling import ROLLOUT_PRIORITY, SampleParams
from tests.engine.rollout.fakes import FakeSampler, FakeTokens

INPUT = [{"role": "user", "content": "Right is {{item.answer}}. Grade: {{sample.output_text}}"}]
SCHEMA = {"type": "object", "properties": {"reason": {"type": "string"}, "result": {"type": "number"}}}


def judge(sampler: FakeSampler, **changes) -> BaseJudge:
    return BaseJudge(sampler=sampler, tokens=FakeTokens(), **{"context_tokens": 4000, **changes})


async def complete(asked: BaseJudge, text: str = "grade 42", *, owner: str = "alice/a", **params):
    return await asked.complete([{"role": "user", "content": text}], params=SamplingParams(**params), schema=SCHEMA, owner=owner)


async def test_the_base_model_judges_without_an_adapter_and_its_tokens_are_counted():
    sampler = FakeSampler(says=lambda prompt, params: '{"reason": "", "result": 1}')
    grader = parse_grader({"type": "score_model", "model": "base", "input": INPUT})

    result = await GraderPool(judges={"base": judge(sampler)}).grade(grader, "42", {"answer": "42"}, owner="alice/a")
    ((ref, prompt, params),) = sampler.asked

    assert (result.reward, result.judge_tokens) == (1.0, len(prompt) + len('{"reason": "", "result": 1}'))
    assert (ref.base, ref.tenant, params.priority, sampler.refs) == (True, "alice/a", ROLLOUT_PRIORITY, [])


async def test_the_answer_is_held_to_the_verdicts_shape_with_an_end_to_its_reason():
    sampler = FakeSampler()
    await complete(judge(sampler), temperature=0.5, top_p=0.9, seed=7)
    params: SampleParams = sampler.asked[0][2]

    assert json.loads(params.json_schema)["properties"] == {"reason": {"type": "string", "maxLength": 200}, "result": {"type": "number"}}
    assert (params.temperature, params.top_p, params.seed) == (0.5, 0.9, 7)


@pytest.mark.parametrize(("tokens", "characters"), [(1024, 200), (164, 25), (32, 0)])
async def test_the_reason_ends_where_the_verdict_still_fits(tokens, characters):
    sampler = FakeSampler()
    await complete(judge(sampler), max_completions_tokens=tokens)

    assert json.loads(sampler.asked[0][2].json_schema)["properties"]["reason"]["maxLength"] == characters


async def test_one_question_has_one_seed_and_another_one_another():
    sampler = FakeSampler()
    for text in ("a", "a", "b"):
        await complete(judge(sampler), text)
    first, again, other = [params.seed for _, _, params in sampler.asked]

    assert first == again != other


async def test_the_answer_takes_the_room_that_the_prompt_leaves():
    sampler = FakeSampler()
    await complete(judge(sampler, context_tokens=len("grade 42") + 12))

    assert sampler.asked[0][2].max_new_tokens == 12


async def test_a_prompt_without_room_for_an_answer_is_a_typed_failure_that_nobody_retries():
    sampler = FakeSampler()
    with pytest.raises(GradingFailed, match="shorten it") as failed:
        await complete(judge(sampler, context_tokens=12))

    assert (failed.value.kind, failed.value.retry, sampler.asked) == ("judge", False, [])


async def test_a_verdict_that_does_not_come_is_given_up_and_its_sampling_ends():
    sampler = FakeSampler()
    sampler.hold = asyncio.Event()
    with pytest.raises(GradingFailed, match=r"no verdict within 0\.01 s") as failed:
        await complete(judge(sampler, seconds=0.01))

    assert (failed.value.kind, failed.value.retry, sampler.active) == ("timeout", True, 0)


async def test_a_sampler_that_fails_is_a_verdict_that_failed_and_no_broken_batch():
    def breaks(prompt: str, params: SampleParams) -> str:
        raise PortError("a completion ended with abort")

    grader = parse_grader({"type": "score_model", "model": "base", "input": INPUT})
    result = await GraderPool(judges={"base": judge(FakeSampler(says=breaks))}).grade(grader, "42", {"answer": "42"})

    assert (result.reward, result.kind) == (None, "judge")
    assert "ended with abort" in result.invalid
