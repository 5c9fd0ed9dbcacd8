"""How a job would go: the events of one step after another, with a reward that rises. Numbers are made up but fit their contracts."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.events import EvalData, RolloutSummary, StepData
from engine.paired import best, change, compare


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
    rewards = eval_rewards(job, spec, version)
    steps = spec["train"]["steps"]
    return EvalData(
        version=version,
        rows=len(rewards),
        reward_mean=sum(rewards.values()) / len(rewards),
        invalid=0,
        temperature=0.0,
        sampled_tokens=900,
        seconds=0.4,
        comparison=None if version == 0 else _compared(job, spec, version, 0),
        best=best({one: sum(eval_rewards(job, spec, one).values()) for one in (0, steps) if one <= version}),
    ).model_dump()


def finding(step: int) -> dict[str, Any]:
    """What the doctor would say of a job whose completions are cut."""
    return {
        **{"code": "truncation", "title": "Many completions are cut off", "chart": "truncated", "first_step": 1, "last_step": step},
        **{"evidence": f"Steps 1 to {step}: 34 % of the completions reached the limit and were graded unfinished."},
        **{"numbers": {"share": 0.34}, "advice": "Raise the longest completion, or ask for shorter answers in the prompt."},
    }


def eval_rewards(job: str, spec: dict[str, Any], version: int, rows: int = 128) -> dict[int, float]:
    """Each row has a difficulty of its own, and is right where the job has come beyond it."""
    reached = reward_at(version, spec["train"]["steps"], 0) - 0.03
    luck = random.Random(f"{job}/eval/{version}")
    return {row: float(random.Random(f"{job}/{row}").random() < reached + luck.gauss(0, 0.1)) for row in range(200, 200 + rows)}


def evaluation(job: str, spec: dict[str, Any], version: int, against: int, wanted: str) -> dict[str, Any]:
    """Every row, of those that ``wanted`` (empty: all) names; for the fake to cut a page of."""
    before, after = (eval_rewards(job, spec, one) for one in (against, version))
    rows = [
        {
            **{"row": row, "prompt": f"{row}+{row + 1}=", "change": change(before[row], after[row])},
            **{name: _answer(row, rewards[row]) for name, rewards in (("before", before), ("after", after))},
        }
        for row in after
    ]
    chosen = [row for row in rows if wanted in ("", row["change"])]
    return {
        "version": version,
        "against": against,
        "comparison": _compared(job, spec, version, against),
        "total": len(chosen),
        "rows": chosen,
    }


def _compared(job: str, spec: dict[str, Any], version: int, against: int) -> dict[str, Any]:
    before, after = (eval_rewards(job, spec, one) for one in (against, version))
    found = compare(before, after, np.random.default_rng(version))
    return {"against": against, **found.as_dict()} if found else {}


def _answer(row: int, reward: float) -> dict[str, Any]:
    text = str(2 * row + 1 if reward else 2 * row)
    fixed = {"invalid": None, "finish_reason": "stop", "sampled_tokens": 4, "sha256": "0" * 64}
    return {"row": row, "reward": reward, "text": text, **fixed}


def said(order: dict[str, Any]) -> str:
    """A trained step can add, the base model is one off; of anything else both say 42."""
    if asked := re.fullmatch(r"(\d+)\+(\d+)=", order["messages"][-1]["content"].strip()):
        return str(int(asked[1]) + int(asked[2]) + (0 if order["version"] else 1))
    return "42"


def chat(order: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """The engine's lines: four prompt tokens, three of them cached, and a token for each letter."""
    counts = {"prompt_tokens": 4, "cached_tokens": 3}
    yield {"type": "begin", **counts}
    wanted = order["top_logprobs"]
    for index in range(order["n"]):
        for letter in text:
            told = {"token": letter, "logprob": -0.5, "top": [{"token": letter, "logprob": -0.5}][: wanted or 0]}
            yield {"type": "delta", "index": index, "text": letter, "tokens": 1, "logprobs": [] if wanted is None else [told]}
        yield {"type": "end", "index": index, "finish_reason": "stop"}
    yield {"type": "usage", **counts, "completion_tokens": len(text) * order["n"]}


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
        **(_tools(completions) if spec.get("environment", {}).get("type") == "tools" else {"finish_reasons": {"stop": completions}}),
    )


def _tools(completions: int) -> dict[str, Any]:
    failed = completions // 8
    return {
        "tool_calls": 2 * completions,
        "tool_failures": {"timeout": failed, "bad_call": failed // 2},
        "tool_seconds": 0.5 * completions,
        "finish_reasons": {"stop": completions - failed, "calls": failed},
    }


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
