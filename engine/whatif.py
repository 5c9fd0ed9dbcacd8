"""What if more jobs came, or the policy were another: today's open jobs played forward in virtual time, without and with the change.

The scheduler is the real one (``sim.driver``). The speeds are those that ``python -m engine.bench profile`` measured on this machine, where
it has; else datasheets', and the answer says which. Every job plays the same few steps: enough for means, and an answer in seconds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.core.adaptive import Adaptive
from engine.core.policy import Policy
from engine.errors import Invalid
from engine.sim import paper
from engine.sim.distributions import CappedLogNormal
from engine.sim.driver import Simulation, Stalled
from engine.sim.measured import MeasuredSpeeds
from engine.sim.profile import ProfileError, read
from engine.sim.speeds import Speeds
from engine.sim.workload import SimJob, StepShape

FIGURES = ("ttfs_seconds", "tpts_seconds", "steps_per_hour", "wait_rollout_seconds", "wait_train_seconds", "rollout_busy", "train_busy")
MOST_JOBS = 128  # today's and added ones: what is played in a few seconds
WORKLOADS = {"gsm8k": paper.GSM8K, "amc12": paper.AMC12, "search": paper.SEARCH}
DATASHEET = "Qwen3-0.6B"


class Question(BaseModel):
    """``jobs`` more jobs of ``workload`` (the paper's, or ``like``: an open job's id), under the running policy with ``policy`` changed."""

    model_config = ConfigDict(extra="forbid")

    jobs: Annotated[int, Field(ge=0, le=64)] = 10
    workload: Literal["gsm8k", "amc12", "search", "like"] = "search"
    like: Annotated[str, Field(max_length=64)] = ""
    steps: Annotated[int, Field(ge=1, le=20)] = 5
    policy: dict[str, Any] = {}


def answer(question: Question, overview: Mapping[str, Any], profile: Path | None = None) -> dict[str, Any]:
    """{"now", "then"}: figures of ``Report`` (None: no job), {"speeds", "notes"}: what they rest on. Raises ``Invalid``."""
    policy = _policy(overview["policy"])
    changed = _changed(policy, question.policy)
    speeds, source = _speeds(profile, collocated=changed.collocated)
    today = [_job(job, question.steps) for job in overview["open"][:MOST_JOBS]]
    added = _added(question, overview)
    return {
        "jobs_now": len(today),
        "jobs_then": len(today) + len(added),
        "now": _played(policy, today, speeds),
        "then": _played(changed, [*today, *added], speeds),
        "speeds": source,
        "notes": _notes(overview, question),
    }


def _played(policy: Policy, jobs: Sequence[SimJob], speeds: Speeds) -> dict[str, float] | None:
    if not jobs:
        return None
    try:
        report = Simulation(policy, jobs, speeds).run()
    except Stalled as error:
        raise Invalid.of([("policy", f"under this policy {error}")]) from None
    return {name: round(getattr(report, name), 4) for name in FIGURES}


def _policy(raw: Mapping[str, Any]) -> Policy:
    adaptive = raw.get("adaptive")
    return Policy(**{**raw, "adaptive": None if adaptive is None else Adaptive(**adaptive)})


def _changed(policy: Policy, changes: Mapping[str, Any]) -> Policy:
    try:
        return policy.changed(changes)
    except (TypeError, ValueError) as error:
        raise Invalid.of([("policy", str(error))]) from None


def _speeds(profile: Path | None, *, collocated: bool) -> tuple[Speeds, str]:
    if profile is not None and profile.exists():
        try:
            measured = read(profile)
        except ProfileError as error:
            raise Invalid.of([("speeds", f"{error}; measure it again: python -m engine.bench profile")]) from None
        return MeasuredSpeeds(measured, collocated=collocated), f"measured on {measured.machine}, {measured.model}, {measured.measured_at}"
    scale = paper.SCALES[DATASHEET]
    words = f"datasheets of {scale.devices} × A100 with {DATASHEET}, not of this machine; measure it: python -m engine.bench profile"
    return (scale.collocated() if collocated else scale.disaggregated()), words


def _job(job: Mapping[str, Any], steps: int) -> SimJob:
    left = max(1, min(steps, job["steps"] - job["version"]))
    return SimJob(job=job["job"], tenant=job["tenant"], steps=left, shape=_shape(job["shape"]), kv_bytes=job["kv_bytes"])


def _added(question: Question, overview: Mapping[str, Any]) -> list[SimJob]:
    """Of one new tenant, since nothing says whose they would be."""
    if question.workload == "like":
        found = next((job for job in overview["open"] if job["job"] == question.like), None)
        if found is None:
            raise Invalid.of([("like", "is no open job; choose one of the queue")])
        shape, kv_bytes = _shape(found["shape"]), found["kv_bytes"]
    else:
        shape = WORKLOADS[question.workload]
        kv_bytes = math.ceil(shape.max_context_tokens * shape.sequences) * overview["kv_bytes_per_token"]
    return [
        SimJob(job=f"added-{number:03d}", tenant="added", steps=question.steps, shape=shape, kv_bytes=kv_bytes)
        for number in range(question.jobs)
    ]


def _shape(shape: Mapping[str, Any]) -> StepShape:
    """As long as its own steps were; before the first as long as it may be. Tools: the paper's search in number and latency."""
    sequences = shape["prompts_per_step"] * shape["group_size"]
    longest = float(shape["max_new_tokens"])
    tokens = shape["step_tokens"]
    mean = longest if tokens is None else min(longest, max(1.0, tokens / sequences - shape["max_prompt_tokens"]))
    made = StepShape(
        prompts_per_step=shape["prompts_per_step"],
        group_size=shape["group_size"],
        prompt_tokens=shape["max_prompt_tokens"],
        new_tokens=CappedLogNormal(median=mean, sigma=0.0 if tokens is None else 0.5, cap=longest),
        max_new_tokens=longest,
    )
    if shape["environment"] == "single_turn":
        return made
    search = paper.SEARCH
    per_turn = dataclasses.replace(made.new_tokens, median=max(1.0, mean / 3))
    return dataclasses.replace(made, new_tokens=per_turn, call_shares=search.call_shares, tool_wait=search.tool_wait, tool_tokens=64)


def _notes(overview: Mapping[str, Any], question: Question) -> list[str]:
    notes = [
        f"Every job is played for at most {question.steps} steps, all from a standing start; added jobs belong to one new organisation."
    ]
    if any(job["shape"]["step_tokens"] is None for job in overview["open"]):
        notes.append("Jobs without a committed step are taken to sample as many tokens as they may.")
    if any(job["shape"]["environment"] != "single_turn" for job in overview["open"]):
        notes.append("Jobs with tools are taken to call them as often and wait as long as the paper's search workload.")
    if len(overview["open"]) > MOST_JOBS:
        notes.append(f"Only the first {MOST_JOBS} of {len(overview['open'])} open jobs are played.")
    return notes
