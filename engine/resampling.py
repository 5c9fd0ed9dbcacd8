"""Groups that teach nothing give way to the next prompts, in a bounded number of rounds (dynamic sampling: DAPO, arXiv 2503.14476, §3.2).

Pure: which groups are missing after some rounds, and what batch the rounds make together. Every round is sampled from the same version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from engine.events import RolloutSummary
from engine.ports import RolloutResult
from engine.rollout.summary import SECONDS, of_parts
from engine.spec import JobSpec
from engine.train.overlong import is_truncated, penalty_of
from engine.trajectory import RolloutBatch, Trajectory, decode, encode

Group = Sequence[Trajectory]


def has_signal(group: Group, spec: JobSpec) -> bool:
    """Whether at least two completions were graded, not all alike, and one of them may train; as the trainer will see it."""
    rewards = {t.reward + penalty_of(t, spec) for t in group if t.reward is not None}
    may_train = any(t.reward is not None and not (spec.train.mask_truncated and is_truncated(t)) for t in group)
    return len(rewards) > 1 and may_train


def groups_of(batch: RolloutBatch) -> list[Group]:
    every = batch.trajectories
    return [every[start : start + batch.group_size] for start in range(0, len(every), batch.group_size)]


def missing(results: Sequence[RolloutResult], spec: JobSpec) -> int:
    """How many of the step's groups still lack signal."""
    with_signal = sum(has_signal(group, spec) for result in results for group in groups_of(decode(result.batch)))
    return max(0, spec.rollout.prompts_per_step - with_signal)


def merged(results: Sequence[RolloutResult], spec: JobSpec, *, first_prompt: int, prompts_drawn: int) -> RolloutResult:
    """The batch of ``prompts_per_step`` groups that all rounds make: those with signal, and if they are too few the first ones without.

    The summary is of everything that was sampled, so that neither the reward's curve nor the bill is of the chosen ones alone.
    """
    batches = [decode(result.batch) for result in results]
    groups = [group for batch in batches for group in groups_of(batch)]
    chosen = _chosen(groups, spec)
    kept = [t for number, group in enumerate(groups) if number in chosen for t in group]
    dropped = [t for number, group in enumerate(groups) if number not in chosen for t in group]
    summary = _summary(results, kept, dropped, batches[0].group_size)
    summary |= {"first_prompt": first_prompt, "prompts_drawn": prompts_drawn, "resample_rounds": len(results) - 1}
    batch = replace(batches[0], trajectories=kept, dropped=dropped, summary=summary)
    return RolloutResult(batch=encode(batch), summary=summary)


def _chosen(groups: Sequence[Group], spec: JobSpec) -> set[int]:
    by_signal = sorted(range(len(groups)), key=lambda number: (not has_signal(groups[number], spec), number))
    return set(by_signal[: spec.rollout.prompts_per_step])


def _summary(results: Sequence[RolloutResult], kept: Group, dropped: Group, group_size: int) -> dict[str, Any]:
    everything = [*kept, *dropped]
    return RolloutSummary(
        **of_parts(results, everything, group_size=group_size),
        groups_dropped=len(dropped) // group_size,
        **{name: sum(result.summary[name] for result in results) for name in SECONDS},
    ).model_dump()
