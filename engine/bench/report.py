"""The bench's report for people: Markdown with plain SVG pictures beside it, made of the same figures as the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.bench.handovers import handovers
from engine.bench.measure import Measured
from engine.bench.plots import bars, timelines
from engine.durable import make_directory, replace_file

SHOWN_SECONDS = 15.0
SHARES = ("rollout_busy", "train_busy", "idle_ready")
BASELINE = "single-disaggregated"


def write_report(
    folder: Path,
    figures: Mapping[str, dict[str, Any]],
    about: dict[str, Any],
    found: Measured,
    predicted: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> Path:
    """Write ``report.md`` and its pictures into ``folder``; returns the report's path. ``predicted``: of ``engine.sim.predict.compare``."""
    make_directory(folder)
    pictures = {"throughput.svg": _throughput(figures), **_timelines(found)}
    for name, picture in pictures.items():
        replace_file(folder / name, picture.encode())
    path = folder / "report.md"
    replace_file(path, report(figures, about, found, predicted, list(pictures)).encode())
    return path


def report(
    figures: Mapping[str, dict[str, Any]],
    about: dict[str, Any],
    found: Measured,
    predicted: Mapping[str, dict[str, Any]],
    pictures: Sequence[str] = (),
) -> str:
    parts = [
        f"# {about['workload']}: {about['jobs']} jobs × {about['steps_per_job']} steps on {about['model']}",
        _regimes(figures),
        *([f"![Steps per hour]({pictures[0]})"] if pictures else []),
        _ratios(figures),
        _bound(about.get("bound"), figures),
        _predicted(predicted),
        _handovers(found),
        *[f"![{name.removesuffix('.svg')}]({name})" for name in pictures[1:]],
        _notes(figures, about),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; the first column to the left, the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join("–" if cell is None else str(cell) for cell in line) + " |" for line in lines)


def _regimes(figures: Mapping[str, dict[str, Any]]) -> str:
    head = [
        "regime",
        "steps/h",
        "wall",
        "TTFS, mean",
        "TPTS",
        "completion",
        "rollout busy",
        "train busy",
        "idle though ready",
        "of the bound",
        "of the work in order",
    ]
    rows = [[_name(regime, one), *_line(one)] for regime, one in figures.items()]
    return table(head, rows)


def _line(one: dict[str, Any]) -> list[str | None]:
    ttfs = one.get("ttfs_s") or []
    return [
        _with_spread(one, "steps_per_hour", "{:,.0f}"),
        _with_spread(one, "wall_s", "{:.1f} s"),
        f"{sum(ttfs) / len(ttfs):.2f} s" if ttfs else None,
        _seconds(one.get("tpts_s")),
        _seconds(one.get("completion_s")),
        *[_percent(one.get(name)) for name in SHARES],
        _percent(one.get("bound_ratio")),
        _percent(one.get("ordered_ratio")),
    ]


def _name(regime: str, one: dict[str, Any]) -> str:
    return regime if one.get("measured_share", 1.0) >= 1.0 else f"{regime} ({one['measured_share']:.0%} run)"


def _with_spread(one: dict[str, Any], name: str, form: str) -> str | None:
    if one.get(name) is None:
        return None
    low, high = one.get("spread", {}).get(name, (one[name], one[name]))
    middle = form.format(one[name])
    return middle if low == high else f"{middle} ({form.format(low)} to {form.format(high)})"


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f} s"


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.0%}"


def _ratios(figures: Mapping[str, dict[str, Any]]) -> str:
    ours = figures.get("marlaas", {})
    lines = []
    for regime, one in figures.items():
        if regime != "marlaas" and ours.get("steps_per_hour") and one.get("steps_per_hour"):
            faster, shorter = ours["steps_per_hour"] / one["steps_per_hour"], one["wall_s"] / ours["wall_s"]
            lines.append(f"- `marlaas` does {faster:.2f} × the steps per hour of `{regime}` and needs 1/{shorter:.2f} of its wall time.")
    return "\n".join(["## Ratios", "", *lines]) if lines else ""


def _bound(bound: dict[str, Any] | None, figures: Mapping[str, dict[str, Any]]) -> str:
    if bound is None:
        return ""
    rows = [
        ["rollout device: all requests in one saturated batch", f"{bound['rollout_s']:.2f} s"],
        ["trainer: all trainings", f"{bound['train_s']:.2f} s"],
        ["longest job by itself, tools included", f"{bound['path_s']:.2f} s"],
    ]
    if bound.get("ordered_s") is not None:
        rows.append(["both devices side by side, each job's steps in order", f"{bound['ordered_s']:.2f} s"])
    most = max(bound["rollout_s"], bound["train_s"], bound["path_s"])
    says = f"No schedule does this work in less than {most:.2f} s: the {bound['binding']} takes that long."
    if (one := figures.get(BASELINE, {})).get("wall_s"):
        says += f" `{BASELINE}` took {one['wall_s']:.1f} s, so nothing can be more than {one['wall_s'] / most:.2f} × as fast as it."
    return "\n\n".join(["## The bound", says, table(["work", "seconds"], rows)])


def _predicted(predicted: Mapping[str, dict[str, Any]]) -> str:
    rows = [
        [regime, f"{one['wall_s']:.1f} s", f"{one['measured_wall_s']:.1f} s", f"{one['error']:+.0%}"]
        for regime, one in predicted.items()
        if "error" in one
    ]
    return "\n\n".join(["## Predicted by the simulator", table(["regime", "predicted wall", "measured", "off by"], rows)]) if rows else ""


def _handovers(found: Measured) -> str:
    parts = []
    for regime in [name for name in ("marlaas", "single-disaggregated") if found.runs.get(name)]:
        run = found.runs[regime][-1]
        lines = handovers(run, trained_alone=found.bound.train_s / run.steps_wanted if found.bound else None)
        rows = [
            [name, f"{1e3 * one['mean_s']:.1f} ms", f"{1e3 * one['longest_s']:.0f} ms", f"{one['share']:.1%}"]
            for name, one in lines.items()
        ]
        parts += [f"### {regime}", table(["hand-over", "mean", "longest", "of a step"], rows)] if rows else []
    return "\n\n".join(["## Hand-overs", *parts]) if parts else ""


def _notes(figures: Mapping[str, dict[str, Any]], about: dict[str, Any]) -> str:
    cut = [name for name, one in figures.items() if one.get("measured_share", 1.0) < 1.0]
    lines = [*about.get("notes", [])]
    if cut:
        lines.append(
            f"{', '.join(cut)}: cut for want of time. Their steps/h are those of what was run, their wall is drawn out at that pace."
        )
    if "single-collocated" in figures:
        lines.append(
            "single-collocated is emulated: one job at a time, rollout and training exclude each other, and each keeps its one core. "
            "A system that gave the idle core to the running phase would gain what a second core gives it."
        )
    if any(one.get("steps_without_signal") for one in figures.values()):
        lines.append("Some steps had no signal (all completions of each group scored alike) and trained nothing: see steps_without_signal.")
    return "\n".join(["## Notes", "", *(f"- {line}" for line in lines)]) if lines else ""


def _throughput(figures: Mapping[str, dict[str, Any]]) -> str:
    values = {name: one["steps_per_hour"] for name, one in figures.items() if one.get("steps_per_hour")}
    ranges = {name: one["spread"]["steps_per_hour"] for name, one in figures.items() if "steps_per_hour" in one.get("spread", {})}
    return bars("Steps per hour, all jobs", values, unit="steps/h", ranges=ranges)


def _timelines(found: Measured) -> dict[str, str]:
    """Of each regime's last round."""
    runs = {name: runs[-1] for name, runs in found.runs.items() if runs and runs[-1].steps}
    return {"timeline.svg": timelines(runs, seconds=SHOWN_SECONDS)} if runs else {}
