"""How much better than its group each completion was. Plain Python floats: the numbers are few and must not depend on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

STD_EPSILON = 1e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class Advantages:
    """``values``: one per completion, 0.0 where there is nothing to learn. Groups are counted, not completions."""

    values: tuple[float, ...]
    groups: int
    zero_signal_groups: int

    @property
    def no_signal(self) -> bool:
        return self.zero_signal_groups == self.groups


def grpo_advantages(rewards: Sequence[float | None], group_size: int) -> Advantages:
    """(r − mean) / (std + ε) within each group of ``group_size`` neighbours; std with n − 1 (DeepSeekMath, arXiv 2402.03300, §4.1.2).

    None marks a completion that could not be graded: it is left out of mean and std and gets 0. A group with fewer than two graded
    completions, or whose rewards are all equal, carries no signal. Raises ``ValueError`` when the rewards do not fill whole groups.
    """
    if not rewards or len(rewards) % group_size:
        raise ValueError(f"{len(rewards)} rewards do not fill groups of {group_size}")
    values: list[float] = []
    silent = 0
    for start in range(0, len(rewards), group_size):
        group = _group_advantages(rewards[start : start + group_size])
        silent += group is None
        values += group or [0.0] * group_size
    return Advantages(values=tuple(values), groups=len(rewards) // group_size, zero_signal_groups=silent)


def _group_advantages(rewards: Sequence[float | None]) -> list[float] | None:
    """The group's advantages, or None when it carries no signal."""
    graded = [reward for reward in rewards if reward is not None]
    if len(graded) < 2 or max(graded) == min(graded):
        return None
    mean = math.fsum(graded) / len(graded)
    std = math.sqrt(math.fsum((reward - mean) ** 2 for reward in graded) / (len(graded) - 1))
    return [0.0 if reward is None else (reward - mean) / (std + STD_EPSILON) for reward in rewards]
