"""A month as bars, one a day, stacked by kind: an SVG made here, so that it needs no script and follows the page's colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from portal.billing.models import Kind
from portal.billing.money import shown
from portal.billing.usage import Month, Used

WIDTH, HEIGHT = 620, 160
GAP = 0.2  # of a day's width


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """In the units of the view box, written with a dot whatever the language."""

    kind: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    title: str
    bars: list[Bar]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """``top``: what the highest bar says; ``kinds``: those that appear, for the legend."""

    days: list[Day]
    top: str
    kinds: list[str]
    width: int = WIDTH
    height: int = HEIGHT


def chart(month: Month, days: Sequence[Used], *, money: bool) -> Chart | None:
    """None when there is nothing to draw. What a reversal takes below 0 is in the table, not in the bars."""
    known = {day.name: day for day in days}
    values = {day.isoformat(): _values(known.get(day.isoformat()), money) for day in month.days}
    highest = max(sum(kinds.values()) for kinds in values.values())
    if not highest:
        return None
    across = WIDTH / len(values)
    drawn = [_day(name, kinds, index * across, across, highest, money) for index, (name, kinds) in enumerate(values.items()) if kinds]
    present = {kind for kinds in values.values() for kind in kinds}
    return Chart(days=drawn, top=_say(highest, money), kinds=[kind for kind in Kind.values if kind in present])


def _values(day: Used | None, money: bool) -> dict[str, int]:
    if day is None:
        return {}
    found = {kind: micros if money else quantity for kind, (quantity, micros) in day.by_kind.items() if money or kind != Kind.STORAGE}
    return {kind: found[kind] for kind in Kind.values if found.get(kind, 0) > 0}


def _day(name: str, kinds: dict[str, int], x: float, across: float, highest: int, money: bool) -> Day:
    bars, below = [], 0
    for kind, value in kinds.items():
        height = HEIGHT * value / highest
        top = HEIGHT - HEIGHT * below / highest - height
        width = across * (1 - GAP)
        bars.append(Bar(kind=kind, x=f"{x + across * GAP / 2:.2f}", y=f"{top:.2f}", width=f"{width:.2f}", height=f"{height:.2f}"))
        below += value
    return Day(title=f"{name}: {_say(below, money)}", bars=bars)


def _say(value: int, money: bool) -> str:
    return shown(value) if money else f"{value:,} tokens"
