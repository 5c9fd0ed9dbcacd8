"""A rollout batch as the trainer accepts it: on-policy, well-formed, with each completion's advantage and whether it trains."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.ports import PortError, TrainRequest
from engine.spec import JobSpec
from engine.train.advantages import ADVANTAGES, Advantages
from engine.train.losses import StepTotals
from engine.train.overlong import is_truncated, penalty_of
from engine.trajectory import Trajectory, check_on_policy, decode


@dataclass(frozen=True, kw_only=True, slots=True)
class StepBatch:
    """``silent``: indices of completions that carry no gradient; ``training``: of those that do. ``counted``: of those that the loss
    averages over, which includes groups without a signal but neither what could not be graded nor what is masked for its length.

    ``penalties``: what each completion lost for its length, 0.0 or less.
    """

    trajectories: list[Trajectory]
    group_size: int
    advantages: Advantages
    penalties: tuple[float, ...]
    counted: tuple[int, ...]
    training: tuple[int, ...]
    silent: tuple[int, ...]

    @property
    def trained_tokens(self) -> int:
        return self._tokens(self.training)

    @property
    def mean_penalty(self) -> float:
        return math.fsum(self.penalties) / len(self.penalties)

    def totals(self, spec: JobSpec, *, parts: int) -> StepTotals:
        """The totals of one of ``parts`` equal shares of the step: so each of its updates estimates the whole step's gradient."""
        return StepTotals(
            completions=len(self.counted) / parts,
            tokens=self._tokens(self.counted) / parts,
            longest=spec.rollout.max_new_tokens * spec.environment.most_turns,
        )

    def _tokens(self, indices: tuple[int, ...]) -> int:
        return sum(self.trajectories[index].sampled_tokens for index in indices)


def open_batch(request: TrainRequest) -> StepBatch:
    """Raises ``StaleBatch`` for anything that was not sampled for exactly this step, and ``PortError`` for a malformed completion."""
    batch = decode(request.batch)
    check_on_policy(batch, job=request.job, version=request.version, attempt=request.attempt)
    for trajectory in batch.trajectories:
        _check(trajectory)
    train, indices = request.spec.train, range(len(batch.trajectories))
    penalties = tuple(penalty_of(t, request.spec) for t in batch.trajectories)
    rewards = [None if t.reward is None else t.reward + penalty for t, penalty in zip(batch.trajectories, penalties, strict=True)]
    advantages = ADVANTAGES[train.advantage](rewards, batch.group_size)
    counted = [i for i in indices if rewards[i] is not None and not (train.mask_truncated and is_truncated(batch.trajectories[i]))]
    training = [i for i in counted if advantages.values[i] != 0.0 and batch.trajectories[i].sampled_tokens > 0]
    return StepBatch(
        trajectories=batch.trajectories,
        group_size=batch.group_size,
        advantages=advantages,
        penalties=penalties,
        counted=tuple(counted),
        training=tuple(training),
        silent=tuple(sorted(set(indices) - set(training))),
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
