"""How much better than its group each completion was. Plain Python floats: the numbers are few and must not depend on a device.

Shared by all: None marks a completion that could not be graded; it is left out of every mean and deviation and gets 0. A group with fewer
than two graded completions, or whose rewards are all equal, carries no signal. Each function raises ``ValueError`` when the rewards do
not fill whole groups of ``group_size`` neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

STD_EPSILON = 1e-4

Rewards = Sequence[float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Advantages:
    """``values``: one per completion, 0.0 where there is nothing to learn. Groups are counted, not completions."""

    values: tuple[float, ...]
    groups: int
    zero_signal_groups: int

    @property
    def no_signal(self) -> bool:
        return self.zero_signal_groups == self.groups


def grpo_advantages(rewards: Rewards, group_size: int) -> Advantages:
    """(r − mean) / (std + ε) within each group; std with n − 1 (GRPO: DeepSeekMath, arXiv 2402.03300, §4.1.2)."""
    return _by_group(rewards, group_size, lambda group: _scaled(_centred(group), _std(group)))


def rloo_advantages(rewards: Rewards, group_size: int) -> Advantages:
    """r − the mean of the group's *other* rewards (REINFORCE leave-one-out: Ahmadian et al., arXiv 2402.14740).

    That is (r − mean) · n / (n − 1): its baseline does not depend on the completion itself, so the gradient is unbiased.
    """
    return _by_group(rewards, group_size, lambda group: [value * len(group) / (len(group) - 1) for value in _centred(group)])


def unscaled_advantages(rewards: Rewards, group_size: int) -> Advantages:
    """r − mean within each group (Dr. GRPO, arXiv 2503.20783, §3.2): easy and hard prompts are not blown up by a small deviation."""
    return _by_group(rewards, group_size, _centred)


def batch_advantages(rewards: Rewards, group_size: int) -> Advantages:
    """(r − the group's mean) / (std of all rewards of the step + ε); std with n − 1 ("Lite PPO": Liu et al., arXiv 2508.08221, §4)."""
    graded = [reward for reward in rewards if reward is not None]
    std = _std(graded) if len(graded) > 1 else 0.0
    return _by_group(rewards, group_size, lambda group: _scaled(_centred(group), std))


ADVANTAGES: dict[str, Callable[[Rewards, int], Advantages]] = {
    "grpo": grpo_advantages,
    "rloo": rloo_advantages,
    "unscaled": unscaled_advantages,
    "batch": batch_advantages,
}


def _by_group(rewards: Rewards, group_size: int, judge: Callable[[list[float]], list[float]]) -> Advantages:
    """``judge`` is given the graded rewards of one group with a signal, and answers their advantages."""
    if not rewards or len(rewards) % group_size:
        raise ValueError(f"{len(rewards)} rewards do not fill groups of {group_size}")
    values: list[float] = []
    silent = 0
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        graded = [reward for reward in group if reward is not None]
        if len(graded) < 2 or max(graded) == min(graded):
            silent += 1
            values += [0.0] * group_size
            continue
        found = iter(judge(graded))
        values += [0.0 if reward is None else next(found) for reward in group]
    return Advantages(values=tuple(values), groups=len(rewards) // group_size, zero_signal_groups=silent)


def _centred(rewards: list[float]) -> list[float]:
    mean = math.fsum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def _std(rewards: list[float]) -> float:
    return math.sqrt(math.fsum(value**2 for value in _centred(rewards)) / (len(rewards) - 1))


def _scaled(values: list[float], std: float) -> list[float]:
    return [value / (std + STD_EPSILON) for value in values]
