"""How long a dataset's prompts are for the engine's base model, so that a job that could not sample one of them is refused at the door.

The sampler counts: it has the tokenizer and the chat template, and will render the same prompts. Each file is measured once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from engine.data import BadRow, Datasets
from engine.environment_spec import RESULT, Environment, instructions, told
from engine.errors import NotReady, Problems
from engine.ports import PortError, RolloutPort
from engine.spec import BlobRef, JobSpec

ROWS_PER_CALL = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Longest:
    """The longest prompt of a file: which row it is, and how many tokens it has."""

    row: int
    tokens: int


class Prompts:
    """Remembers the ``keep`` files measured last. ``seconds`` bounds each call of the sampler."""

    def __init__(self, datasets: Datasets, rollout: RolloutPort, *, seconds: float, keep: int = 4096):
        self._datasets = datasets
        self._rollout = rollout
        self._seconds = seconds
        self._keep = keep
        self._measured: OrderedDict[tuple[str, str], Longest] = OrderedDict()

    async def problems(self, spec: JobSpec) -> Problems:
        """What the prompts have against ``spec``. Raises ``NotReady`` while nobody can count; files must be there (see ``Door.check``)."""
        splits = [("training", "train", spec.dataset.train), ("held-out", "eval", spec.dataset.eval)]
        found = [problem for name, field, ref in splits if ref is not None for problem in await self._split(spec, name, field, ref)]
        return found + await self._observation(spec)

    async def _observation(self, spec: JobSpec) -> Problems:
        """Whether the chat template leaves room for a word of what the environment says between two turns."""
        if spec.environment.most_turns == 1:
            return []
        opened = [{"role": "user", "content": "?"}]
        answered = [*opened, {"role": "assistant", "content": "."}, {"role": "user", "content": "".join((*RESULT, "."))}]
        before, after = await self._count([opened, answered])
        needed, limit = after - before, spec.environment.max_observation_tokens
        if needed <= limit:
            return []
        return [("environment.max_observation_tokens", f"an observation takes at least {needed} tokens on this model; raise it")]

    async def _count(self, chats: list[list[dict[str, str]]]) -> list[int]:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._rollout.prompt_tokens(chats)
        except (PortError, TimeoutError) as error:
            raise NotReady(f"the prompts cannot be measured now: {error}") from error

    async def _split(self, spec: JobSpec, name: str, field: str, ref: BlobRef) -> Problems:
        limit = spec.rollout.max_prompt_tokens
        try:
            longest = await self.longest(ref, spec.environment)
        except BadRow as error:
            return [(f"dataset.{field}", str(error))]
        except (PortError, TimeoutError) as error:
            raise NotReady(f"the prompts cannot be measured now: {error}") from error
        if longest.tokens <= limit:
            return []
        advice = "raise it, or shorten that row"
        return [
            (
                "rollout.max_prompt_tokens",
                f"row {longest.row} of the {name} rows has a prompt of {longest.tokens} tokens, more than {limit}; {advice}",
            )
        ]

    async def longest(self, ref: BlobRef, environment: Environment) -> Longest:
        """With what the environment tells the model. Raises ``BadRow``, and ``PortError`` or ``TimeoutError`` when the sampler does not
        answer.
        """
        key = (ref.sha256, instructions(environment))
        found = self._measured.pop(key, None) or await self._measure(ref, environment)
        self._measured[key] = found
        while len(self._measured) > self._keep:
            self._measured.popitem(last=False)
        return found

    async def _measure(self, ref: BlobRef, environment: Environment) -> Longest:
        file = await asyncio.to_thread(self._datasets.file, ref)
        longest = Longest(row=0, tokens=0)
        for start in range(0, len(file), ROWS_PER_CALL):
            rows = await asyncio.to_thread(file.rows, list(range(start, min(start + ROWS_PER_CALL, len(file)))))
            async with asyncio.timeout(self._seconds):
                counts = await self._rollout.prompt_tokens([told(row.messages, environment) for row in rows])
            here = max((Longest(row=row.row, tokens=tokens) for row, tokens in zip(rows, counts, strict=True)), key=lambda one: one.tokens)
            longest = max(longest, here, key=lambda one: one.tokens)
        return longest
