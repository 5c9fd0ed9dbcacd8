"""Completions that are too long: a penalty that grows before the limit is reached."""

from __future__ import annotations

from engine.spec import JobSpec
from engine.trajectory import Trajectory


def soft_overlong_penalty(length: int, *, limit: int, buffer: int) -> float:
    """What a completion of ``length`` tokens loses, between 0 and −1: 0 up to limit − buffer, −1 at the limit, in between on a line.

    DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13). A ``buffer`` of 0 is no penalty.
    """
    if buffer == 0:
        return 0.0
    return -min(1.0, max(0, length - (limit - buffer)) / buffer)


def penalty_of(trajectory: Trajectory, spec: JobSpec) -> float:
    """Of the longest turn: each turn has ``max_new_tokens`` for itself."""
    longest = max((turn.sampled for turn in trajectory.turns), default=len(trajectory.completion_ids))
    penalty = soft_overlong_penalty(longest, limit=spec.rollout.max_new_tokens, buffer=spec.train.overlong_buffer_tokens)
    return spec.train.overlong_penalty * penalty


def is_truncated(trajectory: Trajectory) -> bool:
    return trajectory.finish_reason == "length"
