"""Runs written by hand: what the engine's events would have said, in round numbers."""

from __future__ import annotations

from typing import Any

from engine.bench.run import Run
from engine.follow import JobView

PHASES = ("wait_rollout", "rollout", "wait_train", "train", "commit")


def step(version: int, start: float, *lasting: float, worked: tuple[float, float, float] = (0.0, 0.0, 0.0), **more: Any) -> dict[str, Any]:
    """The data of a ``step`` event: its phases from ``start`` on, so many seconds each; ``worked``: the sampler's own account."""
    edges = [start]
    for seconds in lasting:
        edges.append(edges[-1] + seconds)
    spans = [{"phase": phase, "start": a, "end": b} for phase, a, b in zip(PHASES, edges, edges[1:], strict=False)]
    names = ("rollout_seconds", "env_seconds", "reward_seconds")
    summary = {"reward_mean": 0.5, **dict(zip(names, worked, strict=True))}
    return {"version": version, "trained_from": version - 1, "attempt": 1, "rollout": summary, "spans": spans, "seconds": {}, **more}


def job(name: str, *steps: dict[str, Any], wanted: int | None = None, kind: str = "agentic", completion: float = 0.0) -> JobView:
    """A job that ended by itself after its ``wanted`` steps (default: as many as it has), or is open."""
    view = JobView(job=name, tenant=name, task=kind, steps=len(steps) if wanted is None else wanted)
    for data in steps:
        view.take({"kind": "step", "data": data})
    if len(steps) == view.steps:
        ending = {"state": "succeeded", "completion_seconds": completion or view.commits[-1], "tpts_seconds": None}
        view.take({"kind": "ended", "data": ending})
    return view


def run(*views: JobView, regime: str = "marlaas", **facts: Any) -> Run:
    """Began and was submitted at 0."""
    named = {view.job: view for view in views}
    return Run(regime=regime, views=named, began=0.0, submitted=dict.fromkeys(named, 0.0), **facts)
