"""Plain SVG pictures for the report: bars, and when each job was in which phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from engine.bench.intervals import Interval
from engine.bench.run import Run, spans
from engine.follow import JobView
from engine.sim import svg

WIDTH, LEFT, ROW = 860, 190, 22
# The engine's phases as the simulator's pictures name them.
PHASES = {
    "wait_rollout": "waiting",
    "rollout": "rollout",
    "wait_train": "waiting for the trainer",
    "train": "training",
    "commit": "training",
}


def bars(title: str, values: Mapping[str, float], *, unit: str, ranges: Mapping[str, Sequence[float]] | None = None) -> str:
    """One bar a name, longest at full width; ``ranges``: least and largest of some, drawn as a whisker."""
    ranges = ranges or {}
    most = max([*values.values(), *(high for _, high in ranges.values()), 1e-9])
    per_unit = (WIDTH - LEFT - 110) / most
    parts = []
    for row, (name, value) in enumerate(values.items()):
        y = 34 + row * (ROW + 6)
        parts.append(_text(LEFT - 8, y + 15, name, anchor="end"))
        parts.append(_box(LEFT, y, value * per_unit, ROW, "#4c78a8", f"{name}: {value:,.1f} {unit}"))
        end = LEFT + max(value, *ranges.get(name, (0.0,))) * per_unit
        if name in ranges and ranges[name][0] < ranges[name][1]:
            low, high = (LEFT + edge * per_unit for edge in ranges[name])
            parts.append(f'<path d="M{low:.1f} {y + 11}H{high:.1f}M{low:.1f} {y + 6}v10M{high:.1f} {y + 6}v10" stroke="#111" fill="none"/>')
        parts.append(_text(end + 6, y + 15, f"{value:,.1f} {unit}"))
    return _picture(title, parts, height=40 + len(values) * (ROW + 6))


def timelines(runs: Mapping[str, Run], *, seconds: float) -> str:
    """The first ``seconds`` of a run of each regime: a lane per job, and one of the sampler's own work."""
    end = min(seconds, max((run.cut_at or run.last_commit) - run.began for run in runs.values()))
    groups = {regime: _lanes(run, end) for regime, run in runs.items()}
    says = f"For each regime the first {end:.1f} s, a lane per job: waiting, in rollout, waiting for the trainer, training."
    return svg.timeline("When each job was in which phase", says, groups, end=end)


def _lanes(run: Run, end: float) -> dict[str, list[svg.Span]]:
    lanes = {f"{number}: {view.task}": _spans(run, view, end) for number, view in enumerate(run.jobs, 1)}
    if run.sampling is not None:
        lanes["sampler's requests"] = [_span("rollout", run, interval, end) for interval in run.sampling if interval[0] - run.began < end]
    return lanes


def _spans(run: Run, view: JobView, end: float) -> list[svg.Span]:
    named = [(PHASES[phase], interval) for phase in PHASES for interval in spans(view, phase)]
    return [_span(phase, run, interval, end) for phase, interval in named if interval[0] - run.began < end]


def _span(phase: str, run: Run, interval: Interval, end: float) -> svg.Span:
    return svg.Span(phase=phase, start=max(0.0, interval[0] - run.began), end=min(end, interval[1] - run.began))


def _box(x: float, y: float, width: float, height: float, colour: str, tip: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.3):.1f}" height="{height}" fill="{colour}"><title>{escape(tip)}</title></rect>'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _picture(title: str, parts: list[str], *, height: float) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif" font-size="12" role="img">'
    ground = f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>'
    name = f'<title>{escape(title)}</title><text x="8" y="20" font-size="14" font-weight="bold">{escape(title)}</text>'
    return "\n".join([head, ground, name, *parts, "</svg>"]) + "\n"
