"""Completions for the viewer: made up, but chosen and judged by the engine's own code."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine import mismatch
from engine.groups import Tokens, Wanted, chosen
from engine.spec import parse_job
from engine.trajectory import RolloutBatch, ToolCall, Trajectory, Turn
from tests.portal.fake_script import reward_at

TOKENIZER = Path(__file__).resolve().parents[2] / "engine" / "models" / "tiny_math" / "tokenizer.json"
_NUMBERS = {"row": int, "sample": int, "length_min": int, "length_max": int, "reward_min": float, "reward_max": float}


def answer(job: str, spec: dict[str, Any], version: int, asked: Any) -> dict[str, Any]:
    """What ``GET /jobs/{job}/groups`` answers."""
    wanted = Wanted(
        **{name: kind(asked[name]) for name, kind in _NUMBERS.items() if name in asked},
        **{name: asked[name] for name in ("finish", "text", "kept") if name in asked},
    )
    tokens = asked.get("tokens") == "true"
    if asked.get("every") == "true":
        found = [{**group, "version": one, "attempt": 1} for one in range(version, -1, -1) for group in _of(job, spec, one, wanted, tokens)]
        return {"groups": found[: int(asked.get("limit", 10))], "next": None}
    found, offset = _of(job, spec, version, wanted, tokens), int(asked.get("offset", 0))
    page = found[offset : offset + int(asked.get("limit", 10))]
    return {"version": version, "attempt": 1, "total": len(found), "groups": page}


def _of(job: str, spec: dict[str, Any], version: int, wanted: Wanted, tokens: bool) -> list[dict[str, Any]]:
    batch, prompts = batch_of(job, spec, version)
    return chosen(batch, parse_job(spec), prompts, wanted, tokens=_tokens(batch) if tokens else None)


def _tokens(batch: RolloutBatch) -> Tokens:
    """Sampler and trainer are further apart from token to token."""
    counts = [t.sampled_tokens for t in batch.trajectories]
    return Tokens.of(batch, mismatch.encode([0.002 * 4**place for count in counts for place in range(count)]))


def batch_of(job: str, spec: dict[str, Any], version: int) -> tuple[RolloutBatch, dict[int, str]]:
    """The last prompt's group is one that was dropped; every tenth completion is cut off."""
    chance = random.Random(f"{job}/groups/{version}")
    right = reward_at(version + 1, spec["train"]["steps"], 0)
    size, tools = spec["rollout"]["group_size"], spec.get("environment", {}).get("type") == "tools"
    prompts = {row: f"{row + 2}+{row + 3}=" for row in range(spec["rollout"]["prompts_per_step"] + 1)}
    groups = [
        [_completion(job, version, row, sample, 2 * row + 5, chance.random() < right, tools) for sample in range(size)] for row in prompts
    ]
    kept, dropped = [t for group in groups[:-1] for t in group], _alike(groups[-1])
    return RolloutBatch(job=job, policy_version=version, attempt=1, group_size=size, trajectories=kept, dropped=dropped), prompts


def _alike(group: list[Trajectory]) -> list[Trajectory]:
    from msgspec.structs import replace

    return [replace(t, reward=0.0, components={"string_check": 0.0}) for t in group]


def _completion(job: str, version: int, row: int, sample: int, total: int, good: bool, tools: bool) -> Trajectory:
    text = str(total if good else total + 1 + sample)
    ids, turns = _ids(text), []
    if tools:
        call = ToolCall(tool="calculator", argument=f"{row + 2}+{row + 3}", answer=str(total), seconds=0.31)
        first = _ids("1+1")
        turns = [
            Turn(sampled=len(first), added=2, text="<tool>calculator: 1+1</tool>", observation=str(total), call=call),
            Turn(sampled=len(ids), added=0, text=text),
        ]
        ids = first + _ids("==") + ids
    sampled = len(ids) - 2 * tools
    return Trajectory(
        **{"job": job, "policy_version": version, "attempt": 1, "load_id": 1, "row": row, "sample": sample, "seed": 0},
        **{"prompt_ids": _ids("1+1="), "completion_ids": ids, "text": text, "turns": turns},
        logprobs=[-0.05 - 0.4 * (i % 4) for i in range(sampled)],
        finish_reason="length" if (row + sample) % 10 == 9 else "stop",
        reward=float(good),
        components={"string_check": float(good)},
    )


def _ids(text: str) -> list[int]:
    return _tokenizer().encode(text, add_special_tokens=False).ids


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER))
