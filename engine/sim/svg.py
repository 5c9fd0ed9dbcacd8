"""Plain SVG, by hand: line charts and timelines that read in light and in dark, by eye and by screen reader.

Colours follow the viewer's scheme through a style element; every file has a title and a description, and each series is told apart by its
dash and its label too, not by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2, log10
from xml.sax.saxutils import escape

FONT = 13
# Pairs of (light, dark), each at least 4.5 to 1 on its background.
INK, FAINT, PAPER = ("#1d2430", "#e8ecf2"), ("#c9d0da", "#465062"), ("#ffffff", "#161b24")
SERIES = (("#5b6472", "#a9b4c4"), ("#8a4b00", "#f2b35c"), ("#00695f", "#4fd1c0"), ("#1f4fc4", "#8fb0ff"))
DASHES = ("2 3", "7 3 2 3", "8 4", "none")
PHASES = {
    "waiting": ("#d3d9e2", "#3d4656"),
    "rollout": ("#1f4fc4", "#8fb0ff"),
    "waiting for the trainer": ("#e0b25a", "#8a6a25"),
    "training": ("#00695f", "#4fd1c0"),
}

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One chart. ``series``: name to points in ascending order of x. Both axes are logarithmic; x has a tick at every point."""

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Points]


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """``phase``: a key of ``PHASES``."""

    phase: str
    start: float
    end: float


def charts(title: str, description: str, panels: Sequence[Panel], *, columns: int) -> str:
    """Panels side by side, ``columns`` a row, under one legend."""
    width, height, top = 330, 260, 64
    rows = ceil(len(panels) / columns)
    parts = [_legend(list(panels[0].series))]
    for number, panel in enumerate(panels):
        x, y = (number % columns) * width, top + (number // columns) * height
        parts.append(f'<g transform="translate({x} {y})">{_panel(panel, width, height)}</g>')
    return _document(title, description, columns * width, top + rows * height + 8, "".join(parts))


def timeline(title: str, description: str, groups: Mapping[str, Mapping[str, Sequence[Span]]], *, end: float) -> str:
    """Lanes of spans, grouped (by regime); all on one axis of seconds from 0 to ``end``."""
    left, right, lane, top = 150, 900, 22, 64
    parts, y = [_phase_legend()], top
    for group, lanes in groups.items():
        parts.append(_text(12, y + 14, group, weight="bold"))
        y += 22
        for name, spans in lanes.items():
            parts.append(_text(left - 10, y + 14, name, anchor="end"))
            parts += [_bar(span, left, right, y, lane - 5, end) for span in spans if span.end > span.start]
            y += lane
        y += 10
    parts.append(_seconds_axis(left, right, y, end))
    return _document(title, description, right + 20, y + 40, "".join(parts))


def _document(title: str, description: str, width: float, height: float, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" '
        f'aria-labelledby="title description" font-family="system-ui, sans-serif" font-size="{FONT}">'
        f'<title id="title">{escape(title)}</title><desc id="description">{escape(description)}</desc><style>{_style()}</style>'
        f'<rect width="100%" height="100%" class="paper"/>{_text(12, 22, title, weight="bold")}{body}</svg>\n'
    )


def _style() -> str:
    def rules(scheme: int) -> str:
        found = [f"text{{fill:{INK[scheme]}}}.paper{{fill:{PAPER[scheme]}}}.axis{{stroke:{INK[scheme]}}}.grid{{stroke:{FAINT[scheme]}}}"]
        found += [f".s{i}{{stroke:{colour[scheme]}}}.f{i}{{fill:{colour[scheme]}}}" for i, colour in enumerate(SERIES)]
        found += [f".p{i}{{fill:{colour[scheme]}}}" for i, colour in enumerate(PHASES.values())]
        return "".join(found)

    return f"{rules(0)}@media (prefers-color-scheme:dark){{{rules(1)}}}"


def _panel(panel: Panel, width: float, height: float) -> str:
    left, right, top, bottom = 58, width - 14, 30, height - 46
    xs = sorted({x for points in panel.series.values() for x, _ in points})
    ys = [y for points in panel.series.values() for _, y in points]
    low, high = floor(log10(min(ys))), ceil(log10(max(ys)))
    high = max(high, low + 1)

    def at_x(x: float) -> float:
        span = log2(xs[-1] / xs[0]) or 1.0
        return left + (right - left) * log2(x / xs[0]) / span

    def at_y(y: float) -> float:
        return bottom - (bottom - top) * (log10(y) - low) / (high - low)

    parts = [_text(left, 16, panel.title, weight="bold")]
    for tick in _ticks(low, high):
        y = at_y(tick)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(left - 6, y + 4, f"{tick:,g}", anchor="end"))
    parts += [_text(at_x(x), bottom + 18, f"{x:g}", anchor="middle") for x in xs]
    parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(_text((left + right) / 2, bottom + 36, f"{panel.y_label}, by {panel.x_label}", anchor="middle"))
    for number, (name, points) in enumerate(panel.series.items()):
        parts.append(_curve(number, name, [(at_x(x), at_y(y)) for x, y in points], points))
    return "".join(parts)


def _ticks(low: int, high: int) -> list[float]:
    """Powers of ten, and 2 and 5 times them where there is room."""
    factors = (1, 2, 5) if high - low < 2 else (1,)
    return [factor * 10.0**power for power in range(low, high) for factor in factors] + [10.0**high]


def _curve(number: int, name: str, placed: Points, values: Points) -> str:
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dots = "".join(
        f'<circle class="f{number}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape(name)}: {of:g}: {value:,.1f}</title></circle>'
        for (x, y), (of, value) in zip(placed, values, strict=True)
    )
    return f'<polyline class="s{number}" fill="none" stroke-width="2" stroke-dasharray="{DASHES[number]}" points="{line}"/>{dots}'


def _legend(names: Sequence[str]) -> str:
    parts = []
    for number, name in enumerate(names):
        x = 12 + number * 190
        parts.append(
            f'<line class="s{number}" stroke-width="2" stroke-dasharray="{DASHES[number]}" x1="{x}" x2="{x + 28}" y1="42" y2="42"/>'
        )
        parts.append(_text(x + 34, 46, name))
    return "".join(parts)


def _phase_legend() -> str:
    parts = []
    for number, name in enumerate(PHASES):
        x = 12 + number * 190
        parts.append(f'<rect class="p{number}" x="{x}" y="34" width="16" height="12"/>{_text(x + 22, 45, name)}')
    return "".join(parts)


def _bar(span: Span, left: float, right: float, y: float, height: float, end: float) -> str:
    x = left + (right - left) * span.start / end
    width = max(0.8, (right - left) * (span.end - span.start) / end)
    number = list(PHASES).index(span.phase)
    label = f"{span.phase}, {span.start:,.0f} to {span.end:,.0f} s"
    return f'<rect class="p{number}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}"><title>{label}</title></rect>'


def _seconds_axis(left: float, right: float, y: float, end: float) -> str:
    step = _nice(end / 8)
    parts = [f'<line class="axis" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>']
    for number in range(int(end / step) + 1):
        x = left + (right - left) * number * step / end
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 5}"/>')
        parts.append(_text(x, y + 20, f"{number * step:,g} s", anchor="middle"))
    return "".join(parts)


def _nice(step: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** floor(log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step)


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
