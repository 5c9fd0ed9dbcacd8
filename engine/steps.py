"""What the events about a step carry: pure functions from measurements to data.

All moments are UTC epoch seconds of one ``Timeline``; a phase lasts from one moment to the next, so a step's phases add up to its latency.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.history import JobHistory
from engine.ports import PortError, Row
from engine.spec import JobSpec
from engine.trajectory import StaleBatch, check_on_policy, decode

TRAINER_FIELDS = (
    "loss",
    "grad_norm",
    "entropy",
    "clip_share",
    "clip_low_share",
    "clip_high_share",
    "importance_capped_share",
    "mismatch_kl",
    "max_ratio",
    "base_kl",
    "overlong_penalty",
    "learning_rate",
    "updates",
    "skipped",
    "zero_signal_groups",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainTimes:
    """When the trainer was given the step, answered, and (None: not yet known) the version was committed."""

    started: float
    trained: float
    committed: float | None = None


def certify(
    batch: bytes, *, job: str, version: int, attempt: int, spec: JobSpec, rows: list[Row], loads: Collection[int]
) -> dict[str, Any]:
    """Count what the sampler returned and prove that all of it belongs to this step (invariant I2): "n of n from version v".

    ``loads``: ids of the loads of this version's adapter that were ordered. Raises ``StaleBatch`` for anything of another job, version,
    attempt or load, and ``PortError`` when a completion is missing or double.
    """
    found = decode(batch)
    check_on_policy(found, job=job, version=version, attempt=attempt)
    samples = {(t.row, t.sample) for t in found.trajectories}
    wanted = {(row.row, sample) for row in rows for sample in range(spec.rollout.group_size)}
    if samples != wanted or len(found.trajectories) != len(wanted):
        raise PortError(
            f"the sampler returned {len(found.trajectories)} completions, {len(samples & wanted)} of the {len(wanted)} asked for"
        )
    if len(used := {t.load_id for t in found.trajectories}) != 1:
        raise PortError(f"the sampler used {len(used)} loads of the adapter within one batch")
    if not used <= set(loads):
        raise StaleBatch(f"the sampler used load {min(used)} of the adapter, ordered were {sorted(loads)}")
    return {"completions": len(wanted), "on_policy": len(samples), "version": version, "load_id": used.pop()}


def rollout_ready_data(
    *, version: int, attempt: int, summary: dict[str, Any], certificate: dict[str, Any], idle_since: float, started: float, ready: float
) -> dict[str, Any]:
    """The data of ``rollout_ready``: enough to finish the step after a restart."""
    spans = [_span("wait_rollout", idle_since, started), _span("rollout", started, ready)]
    return {"version": version, "attempt": attempt, "summary": finite(summary), "certificate": certificate, "spans": spans}


def step_data(*, ready: dict[str, Any], metrics: dict[str, Any], times: TrainTimes, adapter: bytes) -> dict[str, Any]:
    """``StepData`` of the step that trained on the batch of ``ready`` (the data of its ``rollout_ready``)."""
    summary, version = ready["summary"], ready["version"]
    spans = [*ready["spans"], *_train_spans(ready["spans"][-1]["end"], times)]
    trained = finite({name: metrics.get(name) for name in TRAINER_FIELDS})
    return {
        "step": version + 1,
        "version": version + 1,
        "trained_from": version,
        "attempt": ready["attempt"],
        "rollout": summary,
        "certificate": _certificate(ready["certificate"], metrics),
        **trained,
        "tokens": {**_rollout_tokens(summary), **metrics.get("tokens", {})},
        "attribution": "user",
        "seconds": _phase_seconds(spans, summary),
        "spans": spans,
        "adapter_sha256": hashlib.sha256(adapter).hexdigest(),
    }


def with_commit(step: dict[str, Any], times: TrainTimes) -> dict[str, Any]:
    """``step`` with the commit's own duration, which was unknown when the step was stored with its version."""
    spans = [*step["spans"], _span("commit", times.trained, times.committed or times.trained)]
    return {**step, "spans": spans, "seconds": _phase_seconds(spans, step["rollout"])}


def ended_data(job: JobHistory, *, state: str, reason: str, attribution: str, at: datetime) -> dict[str, Any]:
    """The data of ``ended``. TTFS and completion count from ``submitted_at``; TPTS is the mean time from one commit to the next."""
    submitted, first, last = job.submission.submitted_at, job.first_commit_at, job.last_commit_at
    between = (last - first).total_seconds() / (job.version - 1) if first and last and job.version > 1 else None
    return {
        "state": state,
        "reason": reason,
        "attribution": attribution,
        "version": job.version,
        "ttfs_seconds": (first - submitted).total_seconds() if first else None,
        "tpts_seconds": between,
        "completion_seconds": (at - submitted).total_seconds(),
    }


def finite(value: Any) -> Any:
    """``value`` with None for every number that JSON cannot hold (NaN, infinities), so that a broken figure looks broken, not zero."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rollout_tokens(summary: dict[str, Any]) -> dict[str, int]:
    """Prefill: prompts, and what environments added; read by the model, not sampled. Judge: read and written by judges."""
    prefill = summary["prompt_tokens"] + summary.get("env_tokens", 0)
    return {"prefill": prefill, "sampled": summary["sampled_tokens"], "judge": summary.get("judge_tokens", 0)}


def _certificate(sampled: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    trained = {**metrics, **metrics.get("certificate", {})}
    return finite({**sampled, "mismatch_kl": trained.get("mismatch_kl"), "max_ratio": trained.get("max_ratio")})


def _train_spans(ready: float, times: TrainTimes) -> list[dict[str, Any]]:
    return [_span("wait_train", ready, times.started), _span("train", times.started, times.trained)]


def _span(phase: str, start: float, end: float) -> dict[str, Any]:
    return {"phase": phase, "start": start, "end": max(start, end)}


def _phase_seconds(spans: list[dict[str, Any]], summary: dict[str, Any]) -> dict[str, float]:
    """The spans' durations, with environment and reward taken out of the rollout's, so that all add up to the step's latency."""
    seconds = {span["phase"]: span["end"] - span["start"] for span in spans}
    env, reward = summary["env_seconds"] or 0.0, summary["reward_seconds"] or 0.0
    return {"commit": 0.0, **seconds, "rollout": max(0.0, seconds["rollout"] - env - reward), "env": env, "reward": reward}
