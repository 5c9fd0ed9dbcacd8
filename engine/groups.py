"""A batch as people look at it: group by group, with what the trainer made of each completion, and only those that were asked for. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from engine import mismatch
from engine.spec import JobSpec
from engine.train.advantages import ADVANTAGES
from engine.train.overlong import is_truncated, penalty_of
from engine.trajectory import RolloutBatch, Trajectory

Kept = Literal["all", "kept", "dropped"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Which completions: every condition that is not None must hold. Rewards and lengths (in sampled tokens) include both ends.

    ``text`` is looked for in prompts and in everything sampled or said by a tool, blind to case. ``sample`` picks one of each group.
    """

    row: int | None = None
    sample: int | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    length_min: int | None = None
    length_max: int | None = None
    finish: str | None = None
    text: str = ""
    kept: Kept = "all"

    def matches(self, t: Trajectory, prompt: str) -> bool:
        return (
            self.sample in (None, t.sample)
            and self.finish in (None, t.finish_reason)
            and _within(t.reward, self.reward_min, self.reward_max)
            and _within(t.sampled_tokens, self.length_min, self.length_max)
            and (not self.text or self.text.casefold() in "\n".join((prompt, *_words(t))).casefold())
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """What is shown of single tokens: ids, log-probabilities, and by how much the trainer differed where that is known, as
    ``mismatch.decode`` gives it for the batch's trajectories.
    """

    mismatch: Mapping[tuple[int, int], list[float | None]] = field(default_factory=dict)  # by (row, sample)

    @classmethod
    def of(cls, batch: RolloutBatch, data: bytes | None) -> Tokens:
        found = data and mismatch.decode(data, [t.sampled_tokens for t in batch.trajectories])
        return cls(mismatch={(t.row, t.sample): values for t, values in zip(batch.trajectories, found, strict=True)}) if found else cls()

    def shown(self, t: Trajectory) -> dict[str, Any]:
        return {"completion_ids": t.completion_ids, "logprobs": t.logprobs, "mismatch": self.mismatch.get((t.row, t.sample))}


def chosen(
    batch: RolloutBatch, spec: JobSpec, prompts: dict[int, str], wanted: Wanted, *, tokens: Tokens | None = None
) -> list[dict[str, Any]]:
    """Every group with a wanted completion, whole; ``matches`` marks the wanted ones. Without ``tokens`` nothing of single tokens."""
    return [
        _shown(group, spec, prompts.get(group[0].row, ""), dropped, wanted, tokens)
        for group, dropped in _groups(batch)
        if wanted.row in (None, group[0].row)
        and wanted.kept in ("all", "dropped" if dropped else "kept")
        and any(wanted.matches(t, prompts.get(t.row, "")) for t in group)
    ]


def _groups(batch: RolloutBatch) -> Iterator[tuple[Sequence[Trajectory], bool]]:
    for every, dropped in ((batch.trajectories, False), (batch.dropped, True)):
        for start in range(0, len(every), batch.group_size):
            yield every[start : start + batch.group_size], dropped


def _shown(group: Sequence[Trajectory], spec: JobSpec, prompt: str, dropped: bool, wanted: Wanted, tokens: Tokens | None) -> dict[str, Any]:
    rewards = [None if t.reward is None else t.reward + penalty_of(t, spec) for t in group]
    # With "batch" the scale is the whole step's; the sign and the order within the group are the same.
    kind = "unscaled" if spec.train.advantage == "batch" else spec.train.advantage
    advantages = ADVANTAGES[kind](rewards, len(group)).values
    graded = [t.reward for t in group if t.reward is not None]
    return {
        "row": group[0].row,
        "prompt": prompt,
        "dropped": dropped,
        "silent": _why_silent(rewards, dropped),
        "reward_mean": math.fsum(graded) / len(graded) if graded else None,
        "completions": [
            _completion(t, advantage, spec) | (tokens.shown(t) if tokens else {}) | {"matches": wanted.matches(t, prompt)}
            for t, advantage in zip(group, advantages, strict=True)
        ],
    }


def _why_silent(rewards: Sequence[float | None], dropped: bool) -> str:
    """Why the group taught nothing; empty when it did teach."""
    graded = [reward for reward in rewards if reward is not None]
    end = "; other prompts took its place" if dropped else ""
    if len(graded) < 2:
        return f"{len(graded)} of {len(rewards)} completions could be graded, so there is nothing to compare{end}"
    if min(graded) == max(graded):
        return f"every completion got {graded[0]:g}, so none is better than another{end}"
    return "its completions are cut off and masked, so none may train; other prompts took its place" if dropped else ""


def _completion(t: Trajectory, advantage: float, spec: JobSpec) -> dict[str, Any]:
    return {
        "sample": t.sample,
        "text": t.text,
        "reward": t.reward,
        "components": t.components,
        "invalid": t.invalid,
        "penalty": penalty_of(t, spec),
        "advantage": advantage,
        "masked": spec.train.mask_truncated and is_truncated(t),
        "finish_reason": t.finish_reason,
        "sampled_tokens": t.sampled_tokens,
        "added_tokens": t.added_tokens,
        "turns": [msgspec.to_builtins(turn) for turn in t.turns],
    }


def _within(value: float | None, least: float | None, most: float | None) -> bool:
    if least is None and most is None:
        return True
    return value is not None and (least is None or value >= least) and (most is None or value <= most)


def _words(t: Trajectory) -> Iterator[str]:
    yield t.text
    for turn in t.turns:
        yield turn.text
        yield turn.observation
