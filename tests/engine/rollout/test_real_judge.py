"""The base model as a judge on the real engine: even a random model's answer has the shape of a verdict."""

from __future__ import annotations

import asyncio
import json

import pytest

from engine.grader_spec import SamplingParams
from engine.rollout.judge import BaseJudge
from tests.engine.rollout.fakes import row
from tests.engine.rollout.test_real_worker import request, worker_over

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

CHAT = [{"role": "user", "content": "6*7=42?"}]
LABELS = ["good", "bad"]
SCHEMA = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "result": {"type": "string", "enum": LABELS}},
    "required": ["reason", "result"],
    "additionalProperties": False,
}


async def test_verdicts_come_in_shape_and_repeat_themselves_while_a_rollout_runs(sampler, base, adapter_files):
    from engine.rollout.tokens import ModelTokens

    tokens = ModelTokens.load(base.path)
    judge = BaseJudge(sampler=sampler, tokens=tokens, context_tokens=256)
    rollout = asyncio.ensure_future(
        worker_over(sampler, base).rollout(request("judged", adapter_files(41), rows=[row(1)], group_size=8, max_new_tokens=64))
    )

    replies = await asyncio.gather(
        *(judge.complete(CHAT, params=SamplingParams(temperature=1.0), schema=SCHEMA, owner=owner) for owner in ("alice/a", "bob/b"))
    )

    verdict = json.loads(replies[0].text)
    assert verdict["result"] in LABELS and len(verdict["reason"]) <= 200
    assert replies[0] == replies[1]
    assert replies[0].tokens > len(tokens.render(CHAT))
    assert (await rollout).summary["completions"] == 8
