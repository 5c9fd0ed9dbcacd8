"""What a batch amounts to, in numbers: ``events.RolloutSummary``, and the figures of one evaluation."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from engine.events import EvalData, RolloutSummary
from engine.ports import RolloutResult
from engine.rollout.episodes import Played, Span
from engine.trajectory import Trajectory

SECONDS = ("rollout_seconds", "env_seconds", "reward_seconds")
MOST_REASON_CHARACTERS = 500


def rollout_summary(played: Sequence[Played], *, group_size: int, started_at: float) -> RolloutSummary:
    """``played`` in batch order. The phases add up to the batch's duration: ``reward_seconds`` while it was graded and nothing else of it
    was under way, ``env_seconds`` while nothing of it was sampled but some waited for their tools, ``rollout_seconds`` all the rest.
    """
    env_seconds, reward_seconds = _env_and_reward_seconds(played)
    return RolloutSummary(
        **contents([p.trajectory for p in played], group_size=group_size),
        cached_tokens=sum(p.cached_tokens for p in played),
        judge_tokens=sum(p.judge_tokens for p in played),
        rollout_seconds=max(p.grading[1] for p in played) - started_at - env_seconds - reward_seconds,
        env_seconds=env_seconds,
        reward_seconds=reward_seconds,
    )


def contents(trajectories: Sequence[Trajectory], *, group_size: int) -> dict[str, Any]:
    """The fields of ``RolloutSummary`` that the trajectories tell, in batch order.

    Lengths are of sampled tokens. Rewards are over valid gradings, None when there is none.
    """
    rewards = [t.reward for t in trajectories if t.reward is not None]
    groups = [[t.reward for t in trajectories[i : i + group_size]] for i in range(0, len(trajectories), group_size)]
    lengths = [t.sampled_tokens for t in trajectories]
    return {
        "completions": len(trajectories),
        "reward_mean": statistics.fmean(rewards) if rewards else None,
        "reward_std": statistics.pstdev(rewards) if rewards else None,
        "reward_min": min(rewards, default=None),
        "reward_max": max(rewards, default=None),
        "invalid": sum(t.invalid is not None for t in trajectories),
        "invalid_reason": _most_frequent(t.invalid for t in trajectories if t.invalid is not None)[:MOST_REASON_CHARACTERS],
        "truncated": sum(t.finish_reason == "length" for t in trajectories),
        "groups": len(groups),
        "groups_all_right": sum(all(r is not None and r >= 1 for r in group) for group in groups),
        "groups_all_wrong": sum(all(r is not None and r <= 0 for r in group) for group in groups),
        "length_mean": statistics.fmean(lengths),
        "length_max": max(lengths),
        "prompt_tokens": sum(len(t.prompt_ids) for t in trajectories),
        "sampled_tokens": sum(lengths),
        "env_tokens": sum(t.added_tokens for t in trajectories),
        "turns_mean": statistics.fmean(len(t.turns) or 1 for t in trajectories),
        "finish_reasons": dict(Counter(t.finish_reason for t in trajectories)),
        "tool_calls": sum(len(t.tool_calls) for t in trajectories),
        "tool_failures": dict(Counter(call.error for t in trajectories for call in t.tool_calls if call.error)),
        "parts": part_figures(trajectories),
        "tool_seconds": sum(call.seconds for t in trajectories for call in t.tool_calls),
    }


def _most_frequent(reasons: Iterable[str]) -> str:
    """The first of them where several are; "" of none."""
    return next((reason for reason, _ in Counter(reasons).most_common(1)), "")


def of_parts(results: Sequence[RolloutResult], trajectories: Sequence[Trajectory], *, group_size: int) -> dict[str, Any]:
    """The fields of ``RolloutSummary`` but its seconds, of ``results`` that make one batch of ``trajectories`` together."""
    return {
        **contents(trajectories, group_size=group_size),
        "cached_tokens": sum(result.summary["cached_tokens"] for result in results),
        "judge_tokens": sum(result.summary.get("judge_tokens", 0) for result in results),
    }


def part_figures(trajectories: Sequence[Trajectory]) -> dict[str, dict[str, float | None]]:
    """``PartFigures`` of each component. The first one, which carries the grader's own name, is the reward itself and left out."""
    graded = [t for t in trajectories if t.reward is not None]
    names = dict.fromkeys(name for t in graded for name in list(t.components)[1:])
    found = {name: [(t.components[name], t.reward) for t in graded if t.components.get(name) is not None] for name in names}
    return {name: _part(*zip(*pairs, strict=True)) for name, pairs in found.items() if pairs}


def _part(values: Sequence[float], rewards: Sequence[float]) -> dict[str, float | None]:
    varies = len(set(values)) > 1 and len(set(rewards)) > 1
    correlation = statistics.correlation(values, rewards) if varies else None
    return {"mean": statistics.fmean(values), "std": statistics.pstdev(values), "correlation": correlation}


def _env_and_reward_seconds(played: Sequence[Played]) -> tuple[float, float]:
    sampling = [span for p in played for span in p.sampling]
    working = sampling + [span for p in played for span in p.acting]
    sampled, worked = _covered_seconds(sampling), _covered_seconds(working)
    return worked - sampled, _covered_seconds(working + [p.grading for p in played]) - worked


def _covered_seconds(spans: Iterable[Span]) -> float:
    """The length of the union of ``spans``."""
    total, reached = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def eval_data(played: Sequence[Played], *, version: int, temperature: float, seconds: float) -> EvalData:
    """Held-out figures of ``version``; the mean is over valid gradings, None when there is none."""
    rewards = [p.trajectory.reward for p in played if p.trajectory.reward is not None]
    return EvalData(
        version=version,
        rows=len(played),
        reward_mean=statistics.fmean(rewards) if rewards else None,
        invalid=sum(p.trajectory.invalid is not None for p in played),
        temperature=temperature,
        sampled_tokens=sum(p.trajectory.sampled_tokens for p in played),
        judge_tokens=sum(p.judge_tokens for p in played),
        seconds=seconds,
    )
