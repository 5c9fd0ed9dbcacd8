"""What the doctor looks at: a few numbers of each step and of each evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One component of the reward: ``mean``, and how it goes with the reward (None: one of both was constant)."""

    mean: float
    correlation: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """``right`` and ``wrong``: shares of groups in which all completions were. ``cut``: share of completions at the limit. None: not known.

    ``kl``: to the base model, per token.
    """

    step: int
    reward: float | None
    reward_max: float | None
    right: float
    wrong: float
    cut: float
    length: float
    entropy: float | None
    kl: float | None
    mismatch_kl: float | None
    clip_share: float | None
    grad_norm: float | None
    learning_rate: float
    skipped: bool
    parts: Mapping[str, Part]


@dataclass(frozen=True, kw_only=True, slots=True)
class Eval:
    """``reward``: None where nothing could be graded."""

    version: int
    rows: int
    reward: float | None


def step_of(data: Mapping[str, Any]) -> Step:
    """From the data of a ``step`` event, also of one that an older engine wrote."""
    rollout = data["rollout"]
    groups, completions = max(1, rollout["groups"]), max(1, rollout["completions"])
    return Step(
        step=data["step"],
        reward=rollout["reward_mean"],
        reward_max=rollout["reward_max"],
        right=rollout["groups_all_right"] / groups,
        wrong=rollout["groups_all_wrong"] / groups,
        cut=rollout["truncated"] / completions,
        length=rollout["length_mean"],
        entropy=data["entropy"],
        kl=data.get("base_kl"),
        mismatch_kl=data["mismatch_kl"],
        clip_share=data["clip_share"],
        grad_norm=data["grad_norm"],
        learning_rate=data["learning_rate"],
        skipped=data["skipped"] is not None,
        parts={name: Part(mean=part["mean"], correlation=part["correlation"]) for name, part in (rollout.get("parts") or {}).items()},
    )


def eval_of(data: Mapping[str, Any]) -> Eval:
    return Eval(version=data["version"], rows=data["rows"], reward=data["reward_mean"])


def mean(steps: Sequence[Step], value: Callable[[Step], float | None]) -> float | None:
    """Over the steps whose ``value`` is known; None when fewer than half of them have one."""
    known = [found for step in steps if (found := value(step)) is not None]
    return fmean(known) if known and 2 * len(known) >= len(steps) else None
