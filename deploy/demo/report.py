"""What ``make demo`` proves, as numbers: the content of ``var/demo.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.demo.follow import JobView
from engine.overlap import overlap


def report(
    views: Sequence[JobView], *, wall_seconds: float, sampler_before: Mapping[str, Any], sampler_after: Mapping[str, Any]
) -> dict[str, Any]:
    """``sampler_*``: the engine's sampler counters when the jobs began and ended. Shares lie in 0..1, times are seconds."""
    shares = overlap({view.job: view.spans for view in views})
    return {
        "jobs": [_job(view) for view in views],
        "wall_s": round(wall_seconds, 1),
        "rollout_overlap": round(shares.rollout_overlap, 3),
        "train_rollout_overlap": round(shares.train_rollout_overlap, 3),
        "decode_steps_with_2_adapters": _shared_decode_steps(sampler_before, sampler_after),
    }


def all_succeeded(views: Sequence[JobView]) -> bool:
    return bool(views) and all(view.state == "succeeded" for view in views)


def _job(view: JobView) -> dict[str, Any]:
    versions = sorted(view.heldout)
    kl = view.mismatch_kl_mean
    return {
        "tenant": view.order.tenant,
        "job": view.job,
        "state": view.state,
        "steps": len(view.steps),
        "reward_first3": view.mean_reward(slice(0, 3)),
        "reward_last3": view.mean_reward(slice(-3, None)),
        "ttfs_s": _rounded(view.ending.get("ttfs_seconds")),
        "tpts_s": _rounded(view.ending.get("tpts_seconds")),
        "completion_s": _rounded(view.ending.get("completion_seconds")),
        "heldout_first": view.heldout[versions[0]] if versions else None,
        "heldout_last": view.heldout[versions[-1]] if versions else None,
        "mismatch_kl_mean": kl,
        "task": view.order.task,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _shared_decode_steps(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """The share of the sampler's decode steps in between whose batch held two adapters or more."""
    # A sampler that was restarted in between counts from 0 again: then its own count is all there is.
    base = before if after.get("decode_steps", 0) >= before.get("decode_steps", 0) else {}
    steps = after.get("decode_steps", 0) - base.get("decode_steps", 0)
    shared = after.get("decode_steps_with_2_adapters", 0) - base.get("decode_steps_with_2_adapters", 0)
    return round(shared / steps, 3) if steps else 0.0
