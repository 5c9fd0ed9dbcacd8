"""How long a ready completion, batch or version waits before the next part takes it up. Pure functions of a ``Run``.

StartRollout ─▶ sampler … last reward ─▶ batch stored ─▶ trainer … trained ─▶ committed ─▶ StartRollout of the next version
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from engine.bench.intervals import minus, seconds
from engine.bench.run import Run
from engine.follow import JobView

TO_SAMPLER = "to the sampler and, from the last reward, into the store"
TO_TRAINER = "batch ready → trainer, while it was free"
IN_TRAINER = "trainer's call beyond its own work"
COMMIT = "trained → committed"
TO_NEXT = "committed → next rollout begun"
QUEUE = "batch ready → trainer, while it had another job's"
BESIDE = "training in the engine beyond the same training by itself"
TOTAL = "all hand-overs together"
# What the engine itself costs a step; the wait for a trainer that is at work is the machine's limit.
OVERHEAD = (TO_SAMPLER, TO_TRAINER, IN_TRAINER, COMMIT, TO_NEXT)


def handovers(run: Run, *, trained_alone: float | None = None) -> dict[str, dict[str, float]]:
    """By hand-over: ``mean_s`` and ``longest_s`` per step, and ``share`` of a step's mean duration (commit to commit).

    A job's first wait, for admission, is left out. ``trained_alone``: mean seconds of the run's trainings when nothing runs beside them.
    Empty when no job made a step.
    """
    steps = [step for view in run.jobs for step in _steps(run, view)]
    if not steps:
        return {}
    lasted = fmean(step["lasted"] for step in steps)
    table = {name: _line([step[name] for step in steps if name in step], lasted) for name in (*OVERHEAD, QUEUE)}
    table[TOTAL] = _line([sum(step.get(name, 0.0) for name in OVERHEAD) for step in steps], lasted)
    if trained_alone is not None:
        table[BESIDE] = _line([step["train"] - trained_alone for step in steps], lasted)
    return {name: line for name, line in table.items() if line}


def _line(values: list[float], lasted: float) -> dict[str, float]:
    if not values:
        return {}
    mean = fmean(values)
    return {"mean_s": round(mean, 5), "longest_s": round(max(values), 5), "share": round(mean / lasted, 4) if lasted > 0 else 0.0}


def _steps(run: Run, view: JobView) -> Iterator[dict[str, float]]:
    others = [span for other in run.jobs if other is not view for data in other.committed for span in data["spans"]]
    taken = [(span["start"], span["end"]) for span in others if span["phase"] in ("train", "commit")]
    for number, data in enumerate(view.committed):
        spans = {span["phase"]: (span["start"], span["end"]) for span in data["spans"]}
        lasted = {phase: end - start for phase, (start, end) in spans.items()}
        free = seconds(minus([spans["wait_train"]], taken))
        step = {
            "train": lasted["train"],
            "lasted": sum(lasted.values()) - (0.0 if number else lasted["wait_rollout"]),
            TO_SAMPLER: max(0.0, lasted["rollout"] - _worked(data["rollout"])),
            TO_TRAINER: free,
            QUEUE: lasted["wait_train"] - free,
            COMMIT: lasted.get("commit", 0.0),
        }
        if number:
            step[TO_NEXT] = lasted["wait_rollout"]
        if (own := data["seconds"].get("trainer")) is not None:
            step[IN_TRAINER] = max(0.0, lasted["train"] - own)
        yield step


def _worked(summary: dict[str, Any]) -> float:
    """Adapter load, sampling, tools and grading as the sampler's own process measured them."""
    return sum(summary.get(name) or 0.0 for name in ("rollout_seconds", "env_seconds", "reward_seconds"))
