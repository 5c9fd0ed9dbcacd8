"""Figures 6 and 7 and the timeline of phases, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.sim.report import StepTimes
from engine.sim.runs import Runs
from engine.sim.svg import Panel, Span, charts, timeline
from engine.sim.tables import OURS, SINGLE, SYNC, TASKS

Data = dict[str, Any]
TIMELINE_MODEL, TIMELINE_STEPS = "Qwen3-0.6B", 4


def plots(runs: Runs, found: Data) -> dict[str, str]:
    """File name to SVG."""
    return {
        "figure_6.svg": figure_6(found["figure_6"]),
        "figure_7.svg": figure_7(found["figure_7"]),
        "timeline.svg": phases(runs),
    }


def figure_6(data: Data) -> str:
    panels = [_panel(model, curves, "steps_per_hour", "steps an hour") for model, curves in data.items()]
    return charts("Figure 6: throughput by number of jobs (simulated)", _said(data, "steps_per_hour", "steps an hour"), panels, columns=3)


def figure_7(data: Data) -> str:
    panels = [
        _panel(f"{model}, {key[:4].upper()}", curves, key, "seconds") for key in ("ttfs_s", "tpts_s") for model, curves in data.items()
    ]
    said = f"Time to the first step: {_said(data, 'ttfs_s', 's')} Time per step: {_said(data, 'tpts_s', 's')}"
    return charts("Figure 7: time to the first step (TTFS) and per step (TPTS) by number of jobs (simulated)", said, panels, columns=3)


def phases(runs: Runs) -> str:
    """Three tasks side by side in three regimes."""
    groups, end = {}, 0.0
    for name in (SINGLE, SYNC, OURS):
        run = runs.run(name, workload="mixed", model=TIMELINE_MODEL, jobs=len(TASKS), steps=TIMELINE_STEPS)
        groups[name] = {task: _spans(history.steps) for task, history in zip(TASKS, run.histories.values(), strict=True)}
        end = max(end, run.report.wall_seconds)
    said = f"What a GSM8K, an AMC12 and a search job of {TIMELINE_STEPS} steps each do over time on {TIMELINE_MODEL}: " + " ".join(
        f"{name} ends after {max(span.end for spans in lanes.values() for span in spans):,.0f} s." for name, lanes in groups.items()
    )
    return timeline("Phases of three jobs in three regimes (simulated)", said, groups, end=end)


def _panel(title: str, curves: Data, key: str, unit: str) -> Panel:
    series = {name: [(float(jobs), point[key]) for jobs, point in curve.items()] for name, curve in curves.items()}
    return Panel(title=title, x_label="number of jobs", y_label=unit, series=series)


def _said(data: Data, key: str, unit: str) -> str:
    """The ends of each curve in words."""
    parts = []
    for model, curves in data.items():
        for name, curve in curves.items():
            first, *_, last = curve
            parts.append(f"{model}, {name}: {curve[first][key]:,.0f} {unit} with {first} job, {curve[last][key]:,.0f} with {last}.")
    return " ".join(parts)


def _spans(steps: Sequence[StepTimes]) -> list[Span]:
    found = []
    for step in steps:
        found += [
            Span(phase="waiting", start=step.idle_at, end=step.started_at),
            Span(phase="rollout", start=step.started_at, end=step.rolled_out_at),
            Span(phase="waiting for the trainer", start=step.rolled_out_at, end=step.train_at),
            Span(phase="training", start=step.train_at, end=step.committed_at),
        ]
    return found
