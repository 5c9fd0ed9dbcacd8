"""What an episode asks of a sampler, of a tokenizer and of a grader: three small protocols, so that episodes run without vLLM."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.ports import AdapterRef
from engine.rewards.graders import GradeResult
from engine.spec import Grader

# vLLM's scheduler takes the lower number first.
ROLLOUT_PRIORITY = 0
EVALUATION_PRIORITY = 10
PROBE_PRIORITY = 20
# Before rollouts: somebody waits for each token. What chat may have at once is so little that they hardly notice (``chat_room``).
CHAT_PRIORITY = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleParams:
    """``temperature`` 0 is greedy. The same seed, prompt and adapter give the same tokens. ``stop``: the token with which one of these
    strings is whole is the last one (it may hold more than the string's end). ``json_schema``: what the text must be an instance of, as
    JSON, where the tokenizer allows it; then, as with ``top_p`` below 1, log-probabilities are not the model's own: for judges only, and
    looked at only where the base model is sampled.
    """

    max_new_tokens: int
    temperature: float
    seed: int
    priority: int = ROLLOUT_PRIORITY
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    top_p: float = 1.0
    json_schema: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """``logprobs``: natural, one per completion token, of the distribution it was drawn from. ``finish_reason``: "stop" or "length"."""

    completion_ids: list[int] = field(repr=False)
    logprobs: list[float] = field(repr=False)
    finish_reason: str
    cached_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """What a streamed completion has grown by: ``tokens`` of them, whose text may come later (a stop string is held back).

    ``logprobs``: one {"token", "logprob", "top": [{"token", "logprob"}]} per token, where they were asked for. ``finish_reason``: with the
    last piece, as in ``Sampled``.
    """

    text: str
    tokens: int
    cached_tokens: int
    finish_reason: str = ""
    logprobs: tuple[dict[str, Any], ...] = ()


class Sampler(Protocol):
    async def sample(self, adapter: AdapterRef, prompt_ids: list[int], params: SampleParams) -> Sampled:
        """One completion under a loaded adapter. Cancelling the call aborts the request. Raises ``PortError``."""
        ...


class Tokens(Protocol):
    def render(self, messages: list[dict[str, str]]) -> list[int]:
        """Token ids of the chat so far, with the model's prompt for an answer."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Text of sampled ids, without special tokens."""
        ...

    def observe(self, text: str, *, after: list[int], most: int, frame: tuple[str, str] = ("", "")) -> list[int]:
        """At most ``most`` token ids that follow the sampled turn ``after``: its end in the chat template's form unless it was sampled,
        ``text`` (cut if need be) in its ``frame`` (never cut) as the user's next message, and the model's prompt for an answer.
        Raises ``PortError``.
        """
        ...


class Grading(Protocol):
    async def grade(
        self,
        grader: Grader,
        text: str,
        item: Mapping[str, Any],
        *,
        tool_calls: Sequence[Mapping[str, Any]] = (),
        owner: str = "",
        row: int | None = None,
    ) -> GradeResult:
        """See ``rewards.pool.GraderPool.grade``."""
        ...


def completion_seed(seed: int, version: int, row: int, sample: int, turn: int = 0) -> int:
    """The sampling seed of one turn of a completion: a fixed hash, so that a redone attempt samples the same tokens. In 0..2**62."""
    name = f"{seed}/{version}/{row}/{sample}" + (f"/{turn}" if turn else "")
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2
