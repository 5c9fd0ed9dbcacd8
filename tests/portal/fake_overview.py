"""What the fake engine says at ``GET /overview``: its jobs in the phases that their last events tell of, by the shape of the real one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from engine.core.policy import shipped
from engine.spec import kv_bytes, parse_submission

POLICY = shipped("marlaas", slots=8, kv_budget_bytes=1 << 30)
_PHASES = {"rollout_started": "rollout", "rollout_ready": "ready", "train_started": "training", "paused": "held"}


def overview(engine: Any) -> dict[str, Any]:
    """``engine``: a ``FakeEngine``."""
    now = engine.journal[-1]["at"] if engine.journal else "2026-01-01T00:00:00+00:00"
    jobs = [_job(engine, job, now) for job in engine.jobs if not engine.ended(job)]
    waiting = [job for job in jobs if job["phase"] == "waiting"]
    held = [job for job in jobs if job["kv_held"]]
    tenants = {job["tenant"]: job["shape"]["weight"] for job in jobs}
    replicas = {"replicas": 1, "replicas_alive": 1}
    return {
        "engine": engine.engine,
        "epoch": engine.epoch,
        "offset": len(engine.journal),
        "at": now,
        "model": engine.models[0].name,
        "kv_bytes_per_token": engine.models[0].kv_bytes_per_token,
        "policy": engine.policy,
        "admission": engine.admission,
        "kv": {"budget_bytes": POLICY.kv_budget_bytes, "reserved_bytes": sum(job["kv_bytes"] for job in held)},
        "rollouts": {"running": len(held), "limit": None},
        "slots": {"total": POLICY.max_active, "used": len([job for job in jobs if job["phase"] != "waiting"])},
        "sampler": {"kv_used": 0.1, "kv_tokens": {job["tenant"]: 30 for job in held}, "waiting": 0, "preempted": 0, **replicas},
        "sandbox": {"tier": "plain"},
        "disk": {"free_bytes": 50 * 1000**3, "total_bytes": 100 * 1000**3},
        "uptime_seconds": 60.0,
        "open": jobs,
        "training": {
            "running": [job["job"] for job in jobs if job["phase"] == "training"],
            "queue": [job["job"] for job in jobs if job["phase"] == "ready"],
            "slots": 1,
        },
        "next": [_candidate(place, job) for place, job in enumerate(waiting, start=1)],
        "line": len(waiting),
        "shares": [{"tenant": tenant, "weight": weight, "ahead": 0.0} for tenant, weight in sorted(tenants.items())],
        "workers": [{"name": name, "kind": name, "alive": True, "busy": 0, "heard_seconds": 0.1} for name in ("sampler", "trainer")],
        "versions": {job["job"]: [job["version"]] for job in held},
    }


def _job(engine: Any, job: str, now: str) -> dict[str, Any]:
    submission = parse_submission(engine.jobs[job])
    spec, last = submission.spec, _last(engine, job)
    phase = _PHASES.get(last["kind"], "waiting")
    since = (datetime.fromisoformat(now) - datetime.fromisoformat(last["at"])).total_seconds()
    return {
        "job": job,
        "tenant": submission.tenant,
        "phase": phase,
        "code": {"waiting": "slots", "held": "paused"}.get(phase, ""),
        "reason": "waits for a free adapter slot" if phase == "waiting" else "running",
        "position": 1 if phase == "waiting" else None,
        "admitted": phase != "waiting",
        "version": max((e["data"]["version"] for e in engine.journal if e["job"] == job and e["kind"] == "step"), default=0),
        "steps": spec.train.steps,
        "attempt": 1,
        "priority": engine.priorities.get(job, submission.priority),
        "kv_bytes": kv_bytes(spec, engine.models[0].kv_bytes_per_token),
        "kv_held": phase == "rollout",
        "pausing": False,
        "stopping": False,
        "phase_seconds": since if phase in ("rollout", "training") else None,
        "shape": {
            "prompts_per_step": spec.rollout.prompts_per_step,
            "group_size": spec.rollout.group_size,
            "max_prompt_tokens": spec.rollout.max_prompt_tokens,
            "max_new_tokens": spec.rollout.max_new_tokens,
            "environment": spec.environment.type,
            "step_tokens": None,
            "weight": submission.weight,
        },
        "next_seconds": None,
        "eta_seconds": None,
    }


def _candidate(place: int, job: dict[str, Any]) -> dict[str, Any]:
    known = {name: job[name] for name in ("job", "tenant", "kv_bytes", "code", "next_seconds")}
    return {"place": place, **known, "why_not": job["reason"]}


def _last(engine: Any, job: str) -> dict[str, Any]:
    """The event that tells its phase."""
    kinds = {*_PHASES, "accepted", "waiting", "admitted", "step", "resumed"}
    return [event for event in engine.journal if event["job"] == job and event["kind"] in kinds][-1]
