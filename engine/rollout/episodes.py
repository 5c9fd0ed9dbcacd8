"""Episodes: from dataset rows to graded trajectories. Each completion goes its own way (sample → grade), none waits for the batch.

An episode is single-turn for now: one prompt, one completion. What it needs of the world comes in as ``EpisodeTools``.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.ports import AdapterRef, PortError, Row
from engine.rollout.sampling import Grading, Sampled, SampleParams, Sampler, Tokens, completion_seed
from engine.spec import Grader, ToolWait
from engine.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeTools:
    """``clock``: monotonic seconds."""

    sampler: Sampler
    tokens: Tokens
    grading: Grading
    clock: Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodePlan:
    """One batch: ``samples`` completions of each row, all under one adapter version."""

    adapter: AdapterRef
    attempt: int
    grader: Grader
    samples: int
    seed: int
    max_prompt_tokens: int
    max_new_tokens: int
    temperature: float
    priority: int
    ignore_eos: bool = False
    tool_wait: ToolWait | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """When the completion was whole, when its tools had answered, and when its reward was there, on the tools' clock."""

    trajectory: Trajectory
    cached_tokens: int
    sampled_at: float
    acted_at: float
    graded_at: float


async def play(plan: EpisodePlan, rows: Sequence[Row], tools: EpisodeTools) -> list[Played]:
    """All episodes of a batch, ordered by (row position, sample). Raises ``PortError``; then no episode of the batch runs on."""
    prompts = [(row, _prompt(plan, row, tools.tokens)) for row in rows]
    async with _Together() as tasks:
        running = [
            tasks.create_task(_episode(plan, row, prompt_ids, sample, tools))
            for row, prompt_ids in prompts
            for sample in range(plan.samples)
        ]
    return [task.result() for task in running]


class _Together(asyncio.TaskGroup):
    """A task group whose first failure comes out as itself, not inside an ``ExceptionGroup``."""

    async def __aexit__(self, *exc_info) -> bool | None:
        try:
            return await super().__aexit__(*exc_info)
        except BaseExceptionGroup as group:
            first = group.exceptions[0]
            raise first from first.__cause__


def _prompt(plan: EpisodePlan, row: Row, tokens: Tokens) -> list[int]:
    prompt_ids = tokens.render(row.messages)
    if len(prompt_ids) > plan.max_prompt_tokens:
        raise PortError(
            f"row {row.row} has a prompt of {len(prompt_ids)} tokens; rollout.max_prompt_tokens allows {plan.max_prompt_tokens}",
            attribution="user",
        )
    return prompt_ids


async def _episode(plan: EpisodePlan, row: Row, prompt_ids: list[int], sample: int, tools: EpisodeTools) -> Played:
    seed = completion_seed(plan.seed, plan.adapter.version, row.row, sample)
    params = SampleParams(
        max_new_tokens=plan.max_new_tokens, temperature=plan.temperature, seed=seed, priority=plan.priority, ignore_eos=plan.ignore_eos
    )
    sampled = await tools.sampler.sample(plan.adapter, prompt_ids, params)
    sampled_at = tools.clock()
    if plan.tool_wait is not None:
        await asyncio.sleep(tool_seconds(plan.tool_wait, seed))
    acted_at = tools.clock()
    text = tools.tokens.decode(sampled.completion_ids)
    result = await tools.grading.grade(plan.grader, text, row.item)
    return Played(
        trajectory=Trajectory(
            job=plan.adapter.job,
            policy_version=plan.adapter.version,
            attempt=plan.attempt,
            load_id=plan.adapter.load_id,
            row=row.row,
            sample=sample,
            seed=seed,
            prompt_ids=prompt_ids,
            completion_ids=sampled.completion_ids,
            logprobs=_checked(sampled),
            text=text,
            finish_reason=sampled.finish_reason,
            reward=result.reward,
            components={plan.grader.name: result.reward},
            invalid=result.invalid,
        ),
        cached_tokens=sampled.cached_tokens,
        sampled_at=sampled_at,
        acted_at=acted_at,
        graded_at=tools.clock(),
    )


def tool_seconds(wait: ToolWait, seed: int) -> float:
    """How long the stand-in for a tool takes for the completion of ``seed``."""
    return min(wait.cap_seconds, random.Random(seed).lognormvariate(math.log(wait.median_seconds), wait.sigma))


def _checked(sampled: Sampled) -> list[float]:
    if len(sampled.logprobs) != len(sampled.completion_ids):
        raise PortError(f"the sampler returned {len(sampled.logprobs)} log-probabilities for {len(sampled.completion_ids)} tokens")
    return sampled.logprobs
