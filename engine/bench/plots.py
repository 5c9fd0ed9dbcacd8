"""Plain SVG pictures for the report: bars, and when each job was in which phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from engine.bench.run import Run, spans

WIDTH, LEFT, ROW = 860, 190, 22
COLOURS = {"wait_rollout": "#d9d9d9", "rollout": "#4c78a8", "wait_train": "#b9b9b9", "train": "#e45756", "commit": "#54a24b"}
NAMES = {
    "wait_rollout": "waits for a rollout",
    "rollout": "rollout, tools, rewards",
    "wait_train": "waits for the trainer",
    "train": "training",
    "commit": "commit",
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


def timeline(run: Run, *, first_seconds: float | None = None) -> str:
    """One row a job, coloured by phase, and one for the sampler's own work; the first ``first_seconds`` of the run or all of it."""
    length = min(first_seconds or float("inf"), (run.cut_at or run.last_commit) - run.began) or 1e-9
    per_second = (WIDTH - LEFT - 20) / length
    rows = {f"{number + 1}: {view.task}": [(phase, spans(view, phase)) for phase in COLOURS] for number, view in enumerate(run.jobs)}
    if run.sampling is not None:
        rows["sampler has requests"] = [("rollout", run.sampling)]
    parts = []
    for row, (name, phases) in enumerate(rows.items()):
        y = 34 + row * ROW
        parts.append(_text(LEFT - 8, y + 13, name, anchor="end"))
        for phase, intervals in phases:
            for start, end in intervals:
                begin, stop = max(0.0, start - run.began), min(length, end - run.began)
                if stop > begin:
                    tip = f"{NAMES[phase]}: {end - start:.3f} s"
                    parts.append(_box(LEFT + begin * per_second, y, (stop - begin) * per_second, ROW - 5, COLOURS[phase], tip))
    bottom = 40 + len(rows) * ROW
    parts += [_text(LEFT, bottom + 10, "0 s"), _text(WIDTH - 20, bottom + 10, f"{length:.1f} s", anchor="end"), *_legend(bottom + 30)]
    return _picture(f"{run.regime}: when each job was in which phase", parts, height=bottom + 50)


def _legend(y: float) -> list[str]:
    parts, x = [], 8.0
    for phase, colour in COLOURS.items():
        parts += [_box(x, y - 10, 12, 12, colour, NAMES[phase]), _text(x + 18, y, NAMES[phase])]
        x += 40 + 7.0 * len(NAMES[phase])
    return parts


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
