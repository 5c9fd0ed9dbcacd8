"""What a batch amounts to, in numbers: ``events.RolloutSummary``, and the figures of one evaluation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from engine.events import EvalData, RolloutSummary
from engine.rollout.episodes import Played


def rollout_summary(played: Sequence[Played], *, group_size: int, started_at: float) -> RolloutSummary:
    """``played`` in batch order. Phases follow the batch's critical path, so they add up to its duration: ``rollout_seconds`` until the
    last completion was sampled, ``env_seconds`` what tools and ``reward_seconds`` what grading took beyond that.
    Rewards are over valid gradings; 0 when there is none.
    """
    trajectories = [p.trajectory for p in played]
    rewards = [t.reward for t in trajectories if t.reward is not None]
    groups = [[t.reward for t in trajectories[i : i + group_size]] for i in range(0, len(trajectories), group_size)]
    lengths = [len(t.completion_ids) for t in trajectories]
    sampled_at = max(p.sampled_at for p in played)
    acted_at = max(p.acted_at for p in played)
    return RolloutSummary(
        completions=len(played),
        reward_mean=statistics.fmean(rewards) if rewards else 0.0,
        reward_std=statistics.pstdev(rewards) if rewards else 0.0,
        reward_min=min(rewards, default=0.0),
        reward_max=max(rewards, default=0.0),
        invalid=len(played) - len(rewards),
        truncated=sum(t.finish_reason == "length" for t in trajectories),
        groups=len(groups),
        groups_all_right=sum(all(r is not None and r >= 1 for r in group) for group in groups),
        groups_all_wrong=sum(all(r is not None and r <= 0 for r in group) for group in groups),
        length_mean=statistics.fmean(lengths),
        length_max=max(lengths),
        prompt_tokens=sum(len(t.prompt_ids) for t in trajectories),
        sampled_tokens=sum(lengths),
        cached_tokens=sum(p.cached_tokens for p in played),
        rollout_seconds=sampled_at - started_at,
        env_seconds=acted_at - sampled_at,
        reward_seconds=max(p.graded_at for p in played) - acted_at,
    )


def eval_data(played: Sequence[Played], *, version: int, temperature: float, seconds: float) -> EvalData:
    """Held-out figures of ``version``; the mean is over valid gradings."""
    rewards = [p.trajectory.reward for p in played if p.trajectory.reward is not None]
    return EvalData(
        version=version,
        rows=len(played),
        reward_mean=statistics.fmean(rewards) if rewards else 0.0,
        invalid=len(played) - len(rewards),
        temperature=temperature,
        sampled_tokens=sum(len(p.trajectory.completion_ids) for p in played),
        seconds=seconds,
    )
