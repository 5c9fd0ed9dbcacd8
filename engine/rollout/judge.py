"""The shared base model as a judge: adapter off, through the sampler that the rollouts use (``score_model`` and ``label_model``).

It cannot hold up what it judges: a completion is graded when it is done sampling, so whatever waits for a verdict holds nothing that the
verdict needs. Verdicts queue with the rollouts, at their priority, and each has a deadline.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from engine.grader_spec import SamplingParams
from engine.ports import AdapterRef, PortError
from engine.rewards.graders import JUDGE, TIMEOUT, GradingFailed
from engine.rewards.judge import JudgeReply, Messages
from engine.rollout.sampling import ROLLOUT_PRIORITY, SampleParams, Sampler, Tokens

# Without an end to the reason a small model never comes to the verdict; a character takes four tokens where tokens are bytes.
MAX_REASON_CHARACTERS, TOKENS_PER_CHARACTER, VERDICT_TOKENS = 200, 4, 64
FEWEST_ANSWER_TOKENS = 8


class BaseJudge:
    """Implements ``rewards.judge.Judge``. ``context_tokens``: the longest that prompt and answer may be together.

    The answer is held to the schema as it is sampled, so even a model that would not think of JSON gives a verdict. Where the tokenizer
    does not allow that (a word-level one, as tiny-math's), an answer in another shape is no verdict.
    """

    def __init__(self, *, sampler: Sampler, tokens: Tokens, context_tokens: int, seconds: float = 300.0, priority: int = ROLLOUT_PRIORITY):
        self._sampler, self._tokens = sampler, tokens
        self._context_tokens, self._seconds, self._priority = context_tokens, seconds, priority

    async def complete(self, messages: Messages, *, params: SamplingParams, schema: Mapping[str, Any], owner: str) -> JudgeReply:
        prompt_ids = self._tokens.render(messages)
        room = self._context_tokens - len(prompt_ids)
        if room < FEWEST_ANSWER_TOKENS:
            words = f"the judge's prompt has {len(prompt_ids)} tokens, and the base model reads {self._context_tokens}"
            raise GradingFailed(JUDGE, f"{words} with its answer; shorten it")
        most = min(params.max_completions_tokens, room)
        wanted = SampleParams(
            max_new_tokens=most,
            temperature=params.temperature,
            top_p=params.top_p,
            seed=_seed(prompt_ids) if params.seed is None else params.seed,
            priority=self._priority,
            json_schema=json.dumps(_short(schema, most)),
        )
        base = AdapterRef(tenant=owner, job="judge", version=0, load_id=0, base=True)
        try:
            async with asyncio.timeout(self._seconds):
                sampled = await self._sampler.sample(base, prompt_ids, wanted)
        except TimeoutError:
            raise GradingFailed(TIMEOUT, f"no verdict within {self._seconds:g} s", retry=True) from None
        except PortError as error:
            again = error.attribution == "platform"
            raise GradingFailed(JUDGE, f"the base model gave no verdict: {error.reason}", retry=again) from error
        tokens = len(prompt_ids) + len(sampled.completion_ids)
        return JudgeReply(text=self._tokens.decode(sampled.completion_ids), tokens=tokens)

    async def close(self) -> None:
        """The sampler is not its own."""


def _short(schema: Mapping[str, Any], most_tokens: int) -> dict[str, Any]:
    """``schema`` with an end to the reason, so that the verdict behind it fits into ``most_tokens``."""
    properties = dict(schema.get("properties", {}))
    if "reason" in properties:
        fits = max(0, (most_tokens - VERDICT_TOKENS) // TOKENS_PER_CHARACTER)
        properties["reason"] = {**properties["reason"], "maxLength": min(MAX_REASON_CHARACTERS, fits)}
    return {**schema, "properties": properties}


def _seed(prompt_ids: list[int]) -> int:
    """The same question gets the same answer."""
    return int.from_bytes(hashlib.blake2b(repr(prompt_ids).encode(), digest_size=8).digest(), "big") >> 2
