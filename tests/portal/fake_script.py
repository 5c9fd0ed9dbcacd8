"""How a job would go: the events of one step after another, with a reward that rises. Numbers are made up but fit their contracts."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from engine.events import EvalData, RolloutSummary, StepData


def reward_at(step: int, steps: int, noise: float) -> float:
    """From 0.45 towards 0.95, along a logistic curve, in [0, 1]."""
    rise = 1 / (1 + math.exp(-8 * (step / steps - 0.35)))
    return min(1.0, max(0.0, 0.45 + 0.5 * rise + noise))


def step_events(job: str, spec: dict[str, Any], version: int, start: float) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """(seconds since the last one, kind, data) of the step that commits ``version`` + 1; ``start``: UTC epoch seconds."""
    chance = random.Random(f"{job}/{version}")
    seconds = {
        "wait_rollout": chance.uniform(0, 0.1),
        "rollout": chance.uniform(0.5, 1.2),
        "env": 0.0,
        "reward": chance.uniform(0.01, 0.05),
        "wait_train": chance.uniform(0, 0.4),
        "train": chance.uniform(0.05, 0.2),
        "commit": 0.01,
    }
    summary = _summary(spec, version, seconds, chance)
    yield seconds["wait_rollout"], "rollout_started", {"version": version, "attempt": 1}
    yield seconds["rollout"] + seconds["reward"], "rollout_ready", {"version": version, "attempt": 1, "summary": summary.model_dump()}
    yield seconds["wait_train"], "train_started", {"version": version, "attempt": 1}
    yield seconds["train"] + seconds["commit"], "step", _step(spec, version, summary, seconds, start, chance).model_dump()


def eval_event(job: str, spec: dict[str, Any], version: int) -> dict[str, Any]:
    chance = random.Random(f"{job}/eval/{version}")
    reward = reward_at(version, spec["train"]["steps"], chance.gauss(0, 0.01)) - 0.03
    data = EvalData(version=version, rows=128, reward_mean=max(0, reward), invalid=0, temperature=0.0, sampled_tokens=900, seconds=0.4)
    return data.model_dump()


def rollouts(job: str, version: int, spec: dict[str, Any]) -> dict[str, Any]:
    chance = random.Random(f"{job}/rollouts/{version}")
    right = reward_at(version + 1, spec["train"]["steps"], 0)
    trajectories = []
    for row in range(spec["rollout"]["prompts_per_step"]):
        a, b = chance.randrange(50), chance.randrange(50)
        for sample in range(spec["rollout"]["group_size"]):
            good = chance.random() < right
            trajectories.append(_trajectory(row, sample, f"{a}+{b}=", str(a + b if good else a + b + 1), float(good)))
    return {"version": version, "attempt": 1, "total": len(trajectories), "trajectories": trajectories}


def _trajectory(row: int, sample: int, prompt: str, text: str, reward: float) -> dict[str, Any]:
    ids = [ord(c) for c in text]
    return {
        **{"row": row, "sample": sample, "prompt": prompt, "text": text, "reward": reward, "components": {"string_check": reward}},
        **{"finish_reason": "stop", "advantage": reward - 0.5, "prompt_ids": [ord(c) for c in prompt], "completion_ids": ids},
        **{"logprobs": [-0.3] * len(ids), "invalid": None},
    }


def _summary(spec: dict[str, Any], version: int, seconds: dict[str, float], chance: random.Random) -> RolloutSummary:
    groups = spec["rollout"]["prompts_per_step"]
    completions = groups * spec["rollout"]["group_size"]
    mean = reward_at(version + 1, spec["train"]["steps"], chance.gauss(0, 0.03))
    all_right = int(groups * mean**6)
    return RolloutSummary(
        completions=completions,
        reward_mean=mean,
        reward_std=math.sqrt(mean * (1 - mean)),
        reward_min=0.0,
        reward_max=1.0,
        invalid=0,
        truncated=chance.randrange(3),
        groups=groups,
        groups_all_right=all_right,
        groups_all_wrong=int((groups - all_right) * (1 - mean) ** 6),
        length_mean=chance.uniform(3, 4),
        length_max=6,
        prompt_tokens=completions * 12,
        sampled_tokens=completions * 4,
        cached_tokens=0,
        rollout_seconds=seconds["rollout"],
        env_seconds=0.0,
        reward_seconds=seconds["reward"],
    )


def _step(spec: dict[str, Any], version: int, summary: RolloutSummary, seconds: dict, start: float, chance: random.Random) -> StepData:
    mismatch = abs(chance.gauss(0, 1e-5))
    certificate = {"completions": summary.completions, "on_policy": summary.completions, "version": version, "load_id": version + 1}
    return StepData(
        step=version + 1,
        version=version + 1,
        trained_from=version,
        attempt=1,
        rollout=summary,
        certificate={**certificate, "mismatch_kl": mismatch, "max_ratio": 1.01},
        loss=chance.gauss(0, 0.05),
        grad_norm=chance.uniform(0.1, 0.6),
        entropy=0.9 * (1 - version / spec["train"]["steps"]) + 0.1,
        clip_share=chance.uniform(0, 0.02),
        mismatch_kl=mismatch,
        learning_rate=spec["train"]["learning_rate"],
        skipped=None,
        tokens={
            "prefill": summary.prompt_tokens,
            "sampled": summary.sampled_tokens,
            "trained": summary.prompt_tokens + summary.sampled_tokens,
        },
        attribution="user",
        seconds=seconds,
        spans=_spans(seconds, start),
        adapter_sha256="0" * 64,
    )


def _spans(seconds: dict[str, float], start: float) -> list[dict[str, Any]]:
    spans = []
    for phase in ("wait_rollout", "rollout", "wait_train", "train", "commit"):
        end = start + seconds[phase]
        spans.append({"phase": phase, "start": start, "end": end})
        start = end
    return spans
