"""A rollout batch as the trainer accepts it: on-policy, well-formed, with each completion's advantage."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.ports import PortError, TrainRequest
from engine.train.advantages import Advantages, grpo_advantages
from engine.trajectory import Trajectory, check_on_policy, decode


@dataclass(frozen=True, kw_only=True, slots=True)
class StepBatch:
    """``silent``: indices of completions that carry no gradient; ``training``: of those that do."""

    trajectories: list[Trajectory]
    advantages: Advantages
    graded: int
    training: tuple[int, ...]
    silent: tuple[int, ...]

    @property
    def trained_tokens(self) -> int:
        return sum(self.trajectories[index].sampled_tokens for index in self.training)


def open_batch(request: TrainRequest) -> StepBatch:
    """Raises ``StaleBatch`` for anything that was not sampled for exactly this step, and ``PortError`` for a malformed completion."""
    batch = decode(request.batch)
    check_on_policy(batch, job=request.job, version=request.version, attempt=request.attempt)
    for trajectory in batch.trajectories:
        _check(trajectory)
    advantages = grpo_advantages([t.reward for t in batch.trajectories], batch.group_size)
    learns = [value != 0.0 and t.sampled_tokens > 0 for value, t in zip(advantages.values, batch.trajectories, strict=True)]
    return StepBatch(
        trajectories=batch.trajectories,
        advantages=advantages,
        graded=sum(t.reward is not None for t in batch.trajectories),
        training=tuple(index for index, yes in enumerate(learns) if yes),
        silent=tuple(index for index, yes in enumerate(learns) if not yes),
    )


def _check(trajectory: Trajectory) -> None:
    place = f"row {trajectory.row}, sample {trajectory.sample}"
    if not trajectory.prompt_ids:
        raise PortError(f"{place}: the prompt has no tokens")
    if len(trajectory.logprobs) != trajectory.sampled_tokens:
        raise PortError(f"{place}: {len(trajectory.logprobs)} log-probabilities for {trajectory.sampled_tokens} sampled tokens")
    if (told := trajectory.sampled_tokens + trajectory.added_tokens) != len(trajectory.completion_ids):
        raise PortError(f"{place}: turns of {told} tokens in a completion of {len(trajectory.completion_ids)}")
    if trajectory.reward is not None and not math.isfinite(trajectory.reward):
        raise PortError(f"{place}: the reward is {trajectory.reward}", attribution="reward")
