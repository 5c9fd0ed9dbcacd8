"""From what the base model wrote on a few rows to what the job would be: rewards, signal, lengths, tokens and time.

Everything is per row first and then over rows, since completions of one row are alike. Intervals are of 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev
from typing import Any

from engine.probe_estimate import (
    GROUP_SIZES,
    Share,
    fit_beta,
    interval,
    right_share,
    silent_share,
    wilson,
    wrong_share,
)
from engine.probe_pace import StepPace
from engine.spec import JobSpec
from engine.trajectory import Trajectory

EXAMPLES, EXAMPLE_CHARACTERS = 8, 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class RowProbe:
    """One row's completions. ``lengths``: sampled tokens of each; ``added_tokens``: of the environment, all together."""

    row: int
    prompt_tokens: int
    rewards: tuple[float | None, ...]
    lengths: tuple[int, ...]
    truncated: int
    invalid: tuple[str, ...] = ()
    added_tokens: int = 0
    judge_tokens: int = 0

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory], judge_tokens: int) -> RowProbe:
        return cls(
            row=trajectories[0].row,
            prompt_tokens=len(trajectories[0].prompt_ids),
            rewards=tuple(t.reward for t in trajectories),
            lengths=tuple(t.sampled_tokens for t in trajectories),
            truncated=sum(t.finish_reason == "length" for t in trajectories),
            invalid=tuple(t.invalid for t in trajectories if t.invalid is not None),
            added_tokens=sum(t.added_tokens for t in trajectories),
            judge_tokens=judge_tokens,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Took:
    """``seconds``: for all completions of the probe; ``longest_seconds``: for the row that took longest, which no step can undercut."""

    seconds: float
    longest_seconds: float


def forecast(spec: JobSpec, rows: Sequence[RowProbe], took: Took, pace: StepPace) -> dict[str, Any]:
    """What pages and API show. Tokens and seconds are of one step and of the whole job, if it stayed as the base model is now."""
    tokens = _step_tokens(spec, rows)
    seconds = _step_seconds(spec, len(rows), took, tokens["trained"], pace)
    steps = spec.train.steps
    known = [value for value in seconds.values() if value is not None]
    return {
        "rows": len(rows),
        "completions": sum(len(row.rewards) for row in rows),
        "group_size": spec.rollout.group_size,
        **_rewards(rows),
        "zero_signal": _zero_signal(rows, spec.rollout.group_size),
        "group_sizes": by_group_size(rows),
        "lengths": _lengths(rows),
        "prompts": _prompts(rows),
        "step": {"completions": spec.rollout.completions_per_step, "tokens": tokens, "seconds": seconds},
        "job": {
            "steps": steps,
            "tokens": {kind: count * steps for kind, count in tokens.items()},
            "seconds": sum(known) * steps if len(known) == len(seconds) else None,
        },
    }


def by_group_size(rows: Sequence[RowProbe]) -> list[dict[str, Any]]:
    """The share of groups without signal at other group sizes; ``method`` names the estimator (see ``probe_estimate``)."""
    sampled = min(len(row.rewards) for row in rows)
    spread = _spread(rows)
    found = []
    for size in GROUP_SIZES:
        if size <= sampled:
            found.append({"group_size": size, "share": fmean(silent_share(row.rewards, size) for row in rows), "method": "u_statistic"})
        elif spread is not None:
            found.append({"group_size": size, "share": spread.silent(size), "method": "beta_binomial"})
    return found


def examples(trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """A few completions as they were written: the first of each of the first rows."""
    firsts = [t for t in trajectories if t.sample == 0][:EXAMPLES]
    shown = ("row", "reward", "invalid", "finish_reason")
    return [{"text": t.text[:EXAMPLE_CHARACTERS], **{name: getattr(t, name) for name in shown}} for t in firsts]


def _rewards(rows: Sequence[RowProbe]) -> dict[str, Any]:
    graded = [[reward for reward in row.rewards if reward is not None] for row in rows]
    graded = [rewards for rewards in graded if rewards]
    rewards = [reward for own in graded for reward in own]
    passed = [fmean(reward >= 1 for reward in own) for own in graded]
    reasons = [reason for row in rows for reason in row.invalid]
    return {
        "pass_rate": asdict(wilson(fmean(passed), len(passed))) if passed else None,
        "reward": {**asdict(interval([fmean(own) for own in graded])), "std": pstdev(rewards)} if rewards else None,
        "invalid": {"count": len(reasons), "share": len(reasons) / sum(len(row.rewards) for row in rows), "first": reasons[:3]},
    }


def _zero_signal(rows: Sequence[RowProbe], group_size: int) -> dict[str, Any]:
    silent = fmean(silent_share(row.rewards, group_size) for row in rows)
    right = fmean(right_share(row.rewards, group_size) for row in rows)
    wrong = fmean(wrong_share(row.rewards, group_size) for row in rows)
    return {**_shown(wilson(silent, len(rows))), "all_right": right, "all_wrong": wrong}


def _shown(share: Share) -> dict[str, float]:
    return {"share": share.mean, "low": share.low, "high": share.high}


def _spread(rows: Sequence[RowProbe]) -> Any:
    """The fitted spread of pass rates; None where rewards are not only 0 and 1."""
    graded = [[reward for reward in row.rewards if reward is not None] for row in rows]
    if any(reward not in (0.0, 1.0) for own in graded for reward in own):
        return None
    return fit_beta([(int(sum(own)), len(own)) for own in graded])


def _lengths(rows: Sequence[RowProbe]) -> dict[str, Any]:
    lengths = sorted(length for row in rows for length in row.lengths)
    truncated = [row.truncated / len(row.lengths) for row in rows]
    return {
        **asdict(interval([fmean(row.lengths) for row in rows])),
        "median": quantile(lengths, 0.5),
        "p90": quantile(lengths, 0.9),
        "max": lengths[-1],
        "truncated": asdict(wilson(fmean(truncated), len(rows))),
    }


def _prompts(rows: Sequence[RowProbe]) -> dict[str, Any]:
    tokens = sorted(row.prompt_tokens for row in rows)
    return {"mean": fmean(tokens), "p90": quantile(tokens, 0.9), "max": tokens[-1]}


def quantile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that at least ``share`` of them do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _step_tokens(spec: JobSpec, rows: Sequence[RowProbe]) -> dict[str, int]:
    """Per kind, as a step's record counts them; trained are those of the groups that carry a signal."""
    prompts, group = spec.rollout.prompts_per_step, spec.rollout.group_size
    prefill = fmean(row.prompt_tokens * group + row.added_tokens for row in rows)
    sampled = fmean(sum(row.lengths) for row in rows)
    trained = fmean(sum(row.lengths) * (1 - silent_share(row.rewards, group)) for row in rows)
    judge = fmean(row.judge_tokens for row in rows)
    return {
        kind: round(prompts * mean) for kind, mean in (("prefill", prefill), ("sampled", sampled), ("judge", judge), ("trained", trained))
    }


def _step_seconds(spec: JobSpec, rows: int, took: Took, trained_tokens: int, pace: StepPace) -> dict[str, float | None]:
    """The rollout (with environment and grading) as the probe took it, behind everybody else; the rest as steps here take lately."""
    rollout = max(took.longest_seconds, took.seconds * spec.rollout.prompts_per_step / rows)
    per_token = pace.train_seconds_per_token
    return {
        "rollout": rollout,
        "train": None if per_token is None else per_token * trained_tokens,
        "commit": pace.commit_seconds,
        "waiting": pace.wait_seconds,
    }
