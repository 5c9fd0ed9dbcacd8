"""Episodes: from dataset rows to graded trajectories. Each completion goes its own way, none waits for the batch:

    sample a turn → ask the environment ─┬─ its text, as tokens behind the turn's own → sample the next turn …
                                         └─ nothing: the episode is over → grade the last turn

Token ids are kept as they were sampled: a turn's prompt is the last one's prompt, its sampled ids, and the ids of what the environment
said. What an episode needs of the world comes in as ``EpisodeTools``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from engine.environment_spec import Environment, told
from engine.ports import AdapterRef, PortError, Row
from engine.rollout.envs import Env, Reply, Said, Sleep, make_env
from engine.rollout.sampling import Grading, Sampled, SampleParams, Sampler, Tokens, completion_seed
from engine.rollout.tools import Tool
from engine.spec import Grader
from engine.trajectory import Trajectory, Turn

# From when to when, on the tools' clock.
Span = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeTools:
    """``clock``: monotonic seconds. ``sleep``: how an environment waits."""

    sampler: Sampler
    tokens: Tokens
    grading: Grading
    clock: Callable[[], float]
    sleep: Sleep = asyncio.sleep


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodePlan:
    """One batch: ``samples`` completions of each row, all under one adapter version. ``toolbox``: of ``envs.open_tools``."""

    adapter: AdapterRef
    attempt: int
    grader: Grader
    samples: int
    seed: int
    max_prompt_tokens: int
    max_new_tokens: int
    temperature: float
    priority: int
    environment: Environment
    ignore_eos: bool = False
    toolbox: Mapping[str, Tool] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """An episode that is over, and when it was sampling, when it waited for its environment, and when it was graded."""

    trajectory: Trajectory
    cached_tokens: int
    judge_tokens: int
    sampling: list[Span]
    acting: list[Span]
    grading: Span


@dataclass(kw_only=True, slots=True)
class _Story:
    """What was said so far. ``ids``: the prompt and everything since; a new list each turn, since a sampler may hold on to the last."""

    ids: list[int]
    told: int = 0  # tokens since the prompt
    turns: list[Turn] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str = ""
    cached_tokens: int = 0
    sampling: list[Span] = field(default_factory=list)
    acting: list[Span] = field(default_factory=list)

    def add(self, sampled: Sampled, text: str, reply: Reply, added: list[int]) -> None:
        """One more turn, and what the environment ``added`` after it."""
        self.ids = [*self.ids, *sampled.completion_ids, *added]
        self.told += len(sampled.completion_ids) + len(added)
        self.logprobs += _checked(sampled)
        observation = reply.observation or ""
        self.turns.append(Turn(sampled=len(sampled.completion_ids), added=len(added), text=text, observation=observation, call=reply.call))
        self.finish_reason = reply.finish_reason or sampled.finish_reason
        self.cached_tokens += sampled.cached_tokens


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
    prompt_ids = tokens.render(told(row.messages, plan.environment))
    if len(prompt_ids) > plan.max_prompt_tokens:
        raise PortError(
            f"row {row.row} has a prompt of {len(prompt_ids)} tokens; rollout.max_prompt_tokens allows {plan.max_prompt_tokens}",
            attribution="user",
        )
    return prompt_ids


async def _episode(plan: EpisodePlan, row: Row, prompt_ids: list[int], sample: int, tools: EpisodeTools) -> Played:
    story = await _converse(plan, row, prompt_ids, sample, tools)
    text, started_at = story.turns[-1].text, tools.clock()
    calls = [msgspec.to_builtins(turn.call) for turn in story.turns if turn.call is not None]
    owner = f"{plan.adapter.tenant}/{plan.adapter.job}"
    result = await tools.grading.grade(plan.grader, text, row.item, tool_calls=calls, owner=owner, row=row.row)
    return Played(
        trajectory=Trajectory(
            job=plan.adapter.job,
            policy_version=plan.adapter.version,
            attempt=plan.attempt,
            load_id=plan.adapter.load_id,
            row=row.row,
            sample=sample,
            seed=completion_seed(plan.seed, plan.adapter.version, row.row, sample),
            prompt_ids=prompt_ids,
            completion_ids=story.ids[len(prompt_ids) :],
            logprobs=story.logprobs,
            text=text,
            finish_reason=story.finish_reason,
            reward=result.reward,
            components={plan.grader.name: result.reward, **result.components},
            invalid=result.invalid,
            turns=story.turns if len(story.turns) > 1 or story.turns[0].call else [],
        ),
        cached_tokens=story.cached_tokens,
        judge_tokens=result.judge_tokens,
        sampling=story.sampling,
        acting=story.acting,
        grading=(started_at, tools.clock()),
    )


async def _converse(plan: EpisodePlan, row: Row, prompt_ids: list[int], sample: int, tools: EpisodeTools) -> _Story:
    env = make_env(plan.environment, tools=plan.toolbox, clock=tools.clock, sleep=tools.sleep)
    story = _Story(ids=prompt_ids)
    for turn in itertools.count():
        seed = completion_seed(plan.seed, plan.adapter.version, row.row, sample, turn)
        started_at = tools.clock()
        sampled = await tools.sampler.sample(plan.adapter, story.ids, _params(plan, env, seed, story.told))
        sampled_at = tools.clock()
        text = tools.tokens.decode(sampled.completion_ids)
        reply = await env.reply(Said(turn=turn, text=text, finish_reason=sampled.finish_reason, seed=seed))
        story.sampling.append((started_at, sampled_at))
        story.acting.append((sampled_at, tools.clock()))
        added = _observed(env, reply, sampled, tools.tokens)
        if added is not None and _out_of_tokens(plan, story.told + len(sampled.completion_ids) + len(added)):
            added, reply = None, replace(reply, finish_reason="length")
        story.add(sampled, text, reply, added or [])
        if added is None:
            break
    return story


def _observed(env: Env, reply: Reply, sampled: Sampled, tokens: Tokens) -> list[int] | None:
    """Token ids of what the model reads next; None when the episode is over."""
    if reply.observation is None:
        return None
    return tokens.observe(reply.observation, after=sampled.completion_ids, most=env.max_observation_tokens, frame=env.frame)


def _out_of_tokens(plan: EpisodePlan, told: int) -> bool:
    return plan.environment.max_tokens is not None and told >= plan.environment.max_tokens


def _params(plan: EpisodePlan, env: Env, seed: int, told: int) -> SampleParams:
    most = plan.environment.max_tokens
    return SampleParams(
        max_new_tokens=plan.max_new_tokens if most is None else min(plan.max_new_tokens, most - told),
        temperature=plan.temperature,
        seed=seed,
        priority=plan.priority,
        ignore_eos=plan.ignore_eos,
        stop=env.stop,
    )


def _checked(sampled: Sampled) -> list[float]:
    if len(sampled.logprobs) != len(sampled.completion_ids):
        raise PortError(f"the sampler returned {len(sampled.logprobs)} log-probabilities for {len(sampled.completion_ids)} tokens")
    return sampled.logprobs
