"""Recorded rollouts for the trainer's tests: token ids, log-probabilities and rewards made up from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from engine.ports import Snapshot, TrainRequest
from engine.spec import JobSpec, parse_job
from engine.trajectory import RolloutBatch, Trajectory, encode

GROUP = 4


def make_spec(*, rank: int = 4, targets: Sequence[str] = ("q_proj", "v_proj"), alpha: int = 8, seed: int = 0, **changes: Any) -> JobSpec:
    """A small job; ``train__learning_rate=0`` and the like set nested fields."""
    raw: dict[str, Any] = {
        "base_model": "tiny-math",
        "dataset": {"version": "d1", "train": {"sha256": "0" * 64, "bytes": 1}, "train_rows": 100},
        "grader": {"type": "string_check"},
        "rollout": {"prompts_per_step": 3, "group_size": GROUP},
        "lora": {"rank": rank, "alpha": alpha, "target_modules": list(targets)},
        "train": {"learning_rate": 1e-2},
        "seed": seed,
    }
    for path, value in changes.items():
        section, field = path.split("__")
        raw[section][field] = value
    return parse_job(raw)


def make_batch(
    job: str, *, version: int = 0, seed: int = 0, rewards: Sequence[float | None] | None = None, groups: int = 3, **changes: Any
) -> RolloutBatch:
    """``groups`` · GROUP completions of 1 to 9 tokens; ``rewards`` replaces the drawn ones, ``changes`` any field of every trajectory."""
    rng = random.Random(f"{job}/{version}/{seed}")
    trajectories = []
    for row in range(groups):
        prompt = [rng.randrange(3, 99) for _ in range(rng.randint(3, 8))]
        for sample in range(GROUP):
            length = rng.randint(1, 9)
            reward = rng.random() if rewards is None else rewards[row * GROUP + sample]
            fields = {
                "job": job,
                "policy_version": version,
                "attempt": 1,
                "load_id": version + 1,
                "row": row,
                "sample": sample,
                "seed": 0,
                "prompt_ids": prompt,
                "completion_ids": [rng.randrange(3, 99) for _ in range(length)],
                "logprobs": [-4.0 - rng.random() for _ in range(length)],
                "text": "",
                "finish_reason": "stop",
                "reward": reward,
            }
            trajectories.append(Trajectory(**{**fields, **changes}))
    return RolloutBatch(job=job, policy_version=version, attempt=1, group_size=GROUP, trajectories=trajectories)


def make_request(job: str, spec: JobSpec, snapshot: Snapshot, batch: RolloutBatch | None = None, *, version: int = 0) -> TrainRequest:
    batch = batch or make_batch(job, version=version)
    return TrainRequest(job=job, version=version, attempt=1, spec=spec, snapshot=snapshot, batch=encode(batch), deadline_seconds=60.0)
