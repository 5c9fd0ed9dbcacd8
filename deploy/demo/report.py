"""What ``make demo`` proves, as numbers: the content of ``var/demo.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from deploy.demo.follow import Followed
from engine.follow import shares


def report(
    views: Sequence[Followed], *, wall_seconds: float, sampler_before: Mapping[str, Any], sampler_after: Mapping[str, Any]
) -> dict[str, Any]:
    """``sampler_*``: the engine's sampler counters when the jobs began and ended. Shares lie in 0..1, times are seconds."""
    sharing = shares({view.job: view.facts for view in views}, sampler_before, sampler_after)
    return {"jobs": [_job(view) for view in views], "wall_s": round(wall_seconds, 1), **sharing}


def all_succeeded(views: Sequence[Followed]) -> bool:
    return bool(views) and all(view.facts.state == "succeeded" for view in views)


def _job(view: Followed) -> dict[str, Any]:
    facts = view.facts
    versions = sorted(facts.heldout)
    return {
        "tenant": facts.tenant,
        "job": view.job,
        "task": facts.task,
        "state": facts.state,
        "steps": facts.step,
        "reward_first3": _mean(facts.rewards[:3]),
        "reward_last3": _mean(facts.rewards[-3:]),
        "ttfs_s": _rounded(facts.ending.get("ttfs_seconds")),
        "tpts_s": _rounded(facts.ending.get("tpts_seconds")),
        "completion_s": _rounded(facts.ending.get("completion_seconds")),
        "heldout_first": facts.heldout[versions[0]] if versions else None,
        "heldout_last": facts.heldout[versions[-1]] if versions else None,
        "mismatch_kl_mean": facts.mismatch_kl,
    }


def _mean(rewards: Sequence[float]) -> float | None:
    return round(fmean(rewards), 4) if rewards else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
