"""The base model as a judge on the real engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from engine.grader_spec import SamplingParams
from engine.rollout.judge import BaseJudge
from tests.engine.rollout.fakes import row
from tests.engine.rollout.real import RealBase
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


def byte_level(path: Path) -> RealBase:
    """A random model of tiny-math's shape that reads and writes bytes, as the tokenizers of real models do."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from engine.models.make_tiny_math import build_model

    names = ["<pad>", "<eos>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    core = Tokenizer(models.BPE(vocab={name: number for number, name in enumerate(names)}, merges=[], unk_token="<unk>"))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    model = build_model(tokenizer, seed=3)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return RealBase(path=path, layers=model.config.num_hidden_layers, vocabulary=model.config.vocab_size)


async def judged(sampler, base: RealBase, owners=("alice/a", "bob/b")):
    from engine.rollout.tokens import ModelTokens

    judge = BaseJudge(sampler=sampler, tokens=ModelTokens.load(base.path), context_tokens=250)
    return await asyncio.gather(
        *(judge.complete(CHAT, params=SamplingParams(temperature=1.0), schema=SCHEMA, owner=owner) for owner in owners)
    )


async def test_even_a_random_models_answer_has_the_shape_of_a_verdict(vllm_environment, tmp_path):
    from engine.rollout.vllm_worker import VllmSampler

    base = byte_level(tmp_path / "base")
    sampler = await VllmSampler.start(base.sampler_config(vllm_environment, tmp_path / "adapters"))
    try:
        first, second = await judged(sampler, base)
    finally:
        await sampler.close()
    verdict = json.loads(first.text)

    assert verdict["result"] in LABELS and len(verdict["reason"]) <= 200
    assert first == second
    assert first.tokens > len(CHAT[0]["content"])


async def test_a_tokenizer_that_allows_no_schema_costs_the_verdict_and_not_the_engine(sampler, base, adapter_files):
    rollout = asyncio.ensure_future(
        worker_over(sampler, base).rollout(request("judged", adapter_files(41), rows=[row(1)], group_size=8, max_new_tokens=64))
    )
    first, second = await judged(sampler, base)

    assert first == second and first.tokens > 0
    assert (await rollout).summary["completions"] == 8
    assert not sampler.died.is_set()
