"""What a simulated job does in a step: its episodes, as a few cohorts of sequences that go the same way.

A step of 64 × 8 completions is not 512 histories but a handful: the bulk of the sequences, in bands of length (or, where episodes call
tools, by the number of calls) with the mean of their band, and two lone ones, the longest and the slowest of the step, which decide when
it is over. Their quantiles are drawn anew for each step from the law of the extreme of n draws (u^(1/n)), so a step is a pure function of
(seed, job, version, attempt), and the work of a long run is that of the distributions' means.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from engine.core.messages import Submitted
from engine.sim.distributions import CappedLogNormal

BANDS = 6
EXTREMES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """Of each sequence: ``prefill_tokens`` enter the model, ``new_tokens`` are sampled, then it waits. ``context_tokens``: at the start."""

    prefill_tokens: float
    context_tokens: float
    new_tokens: float
    wait_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Cohort:
    sequences: int
    turns: tuple[Turn, ...]

    @property
    def tokens(self) -> float:
        """All that one of its sequences holds in the end: prompt, sampled and tool tokens."""
        return self.turns[-1].context_tokens + self.turns[-1].new_tokens

    @property
    def sampled_tokens(self) -> float:
        return sum(turn.new_tokens for turn in self.turns)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepShape:
    """One step of a job: ``prompts_per_step`` × ``group_size`` episodes.

    ``new_tokens``: sampled per turn; ``max_new_tokens``: per episode. ``call_shares[k]``: share of the episodes with k tool calls, each of
    which takes ``tool_wait`` and adds ``tool_tokens``. ``final_wait``: from the last token to the reward (a judge). ``prefix_cached``: the
    sampler finds a group's prompt, and an episode's earlier turns, in its prefix cache, so only new tokens are prefilled.
    """

    prompts_per_step: int
    group_size: int
    prompt_tokens: int
    new_tokens: CappedLogNormal
    max_new_tokens: float
    call_shares: tuple[float, ...] = (1.0,)
    tool_wait: CappedLogNormal | None = None
    tool_tokens: int = 0
    final_wait: CappedLogNormal | None = None
    prefix_cached: bool = True

    @property
    def sequences(self) -> int:
        return self.prompts_per_step * self.group_size

    @property
    def max_context_tokens(self) -> float:
        return self.prompt_tokens + self.max_new_tokens + (len(self.call_shares) - 1) * self.tool_tokens

    def calls(self, q: float) -> int:
        """Tool calls of the episode at quantile ``q``."""
        return next((k for k, share in enumerate(accumulate(self.call_shares)) if q < share), len(self.call_shares) - 1)

    def episode(self, *, calls: int, new_tokens: float, tool_seconds: float, final_seconds: float) -> tuple[Turn, ...]:
        """The way of an episode that samples so much and waits so long in all; both spread evenly over its turns."""
        turns = calls + 1
        new = min(self.max_new_tokens, new_tokens) / turns
        way, context = [], float(self.prompt_tokens)
        for number in range(turns):
            added = self.prompt_tokens / self.group_size if number == 0 else self.tool_tokens
            prefill = added if self.prefix_cached else context
            wait = tool_seconds / calls if number < calls else final_seconds
            way.append(Turn(prefill_tokens=prefill, context_tokens=context, new_tokens=new, wait_seconds=wait))
            context += new + self.tool_tokens
        return tuple(way)


def cohorts(shape: StepShape, chance: random.Random) -> list[Cohort]:
    """A step's episodes. Every sequence is in exactly one cohort."""
    if shape.sequences <= BANDS + EXTREMES:
        return each(shape, chance)
    most = len(shape.call_shares) - 1
    longest = chance.random() ** (1 / shape.sequences)
    slowest = chance.random() ** (1 / max(1.0, shape.sequences * shape.call_shares[most]))
    return [*_bulk(shape), _lone(shape, longest, chance.random(), most), _lone(shape, chance.random(), slowest, most)]


def each(shape: StepShape, chance: random.Random) -> list[Cohort]:
    """Every sequence drawn by itself: what ``cohorts`` stands for, and some thirty times as slow."""
    return [_lone(shape, chance.random(), chance.random(), shape.calls(chance.random())) for _ in range(shape.sequences)]


def _lone(shape: StepShape, length_q: float, wait_q: float, calls: int) -> Cohort:
    turns = shape.episode(
        calls=calls,
        new_tokens=shape.new_tokens.summed(calls + 1).quantile(length_q),
        tool_seconds=shape.tool_wait.summed(calls).quantile(wait_q) if calls and shape.tool_wait else 0.0,
        final_seconds=shape.final_wait.quantile(wait_q) if shape.final_wait else 0.0,
    )
    return Cohort(sequences=1, turns=turns)


@cache
def _bulk(shape: StepShape) -> tuple[Cohort, ...]:
    """The same in each step."""
    many = shape.sequences - EXTREMES
    parts = _by_calls(shape) if len(shape.call_shares) > 1 else _by_length(shape)
    ends = [round(many * reached) for reached in accumulate(share for share, _ in parts)]
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    return tuple(Cohort(sequences=size, turns=turns) for size, (_, turns) in zip(sizes, parts, strict=True) if size)


def _by_calls(shape: StepShape) -> list[tuple[float, tuple[Turn, ...]]]:
    return [(share, _mean_episode(shape, calls, shape.new_tokens.mean())) for calls, share in enumerate(shape.call_shares)]


def _by_length(shape: StepShape) -> list[tuple[float, tuple[Turn, ...]]]:
    lengths = [shape.new_tokens.band_mean(i / BANDS, (i + 1) / BANDS) for i in range(BANDS if shape.new_tokens.sigma else 1)]
    return [(1 / len(lengths), _mean_episode(shape, 0, length)) for length in lengths]


def _mean_episode(shape: StepShape, calls: int, tokens_per_turn: float) -> tuple[Turn, ...]:
    return shape.episode(
        calls=calls,
        new_tokens=tokens_per_turn * (calls + 1),
        tool_seconds=shape.tool_wait.mean() * calls if shape.tool_wait else 0.0,
        final_seconds=shape.final_wait.mean() if shape.final_wait else 0.0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SimJob:
    """One job. ``eval_seconds`` > 0: its first and last version are evaluated, beside its steps. ``draw``: how its episodes are drawn."""

    job: str
    tenant: str
    steps: int
    shape: StepShape
    kv_bytes: int = 1
    eval_seconds: float = 0.0
    submitted_at: float = 0.0
    seed: int = 0
    draw: Callable[[StepShape, random.Random], list[Cohort]] = cohorts

    def cohorts(self, version: int, attempt: int = 1) -> list[Cohort]:
        """What one attempt at one step samples: a pure function of the job's seed and the step."""
        return self.draw(self.shape, random.Random(f"{self.seed}/{self.job}/{version}/{attempt}"))

    def submission(self, at: float) -> Submitted:
        return Submitted(at=at, job=self.job, tenant=self.tenant, steps=self.steps, kv_bytes=self.kv_bytes, eval_ends=self.eval_seconds > 0)


def replicas(shapes: list[StepShape], *, jobs: int, steps: int, seed: int = 0, tenants: int = 3) -> list[SimJob]:
    """``jobs`` jobs, all submitted at 0, that take the shapes in turn."""
    return [
        SimJob(job=f"job{n:04d}", tenant=f"tenant{n % tenants}", steps=steps, shape=shapes[n % len(shapes)], seed=seed) for n in range(jobs)
    ]
