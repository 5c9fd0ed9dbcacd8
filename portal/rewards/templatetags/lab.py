"""Drawings and words of the Lab."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.safestring import SafeString

from portal.histogram import histogram_svg
from portal.rewards import lessons

register = template.Library()


@register.simple_tag
def reward_histogram(bins: list[dict[str, Any]]) -> SafeString:
    """Bars of the rewards. The same figures stand in a table beside it, so it is a picture with a name."""
    common = max(bins, key=lambda entry: entry["rows"])
    label = f"Rewards: most, {common['rows']} of {sum(entry['rows'] for entry in bins)}, lie from {common['from']:g} to {common['to']:g}"
    return histogram_svg(bins, label)


@register.filter
def reward(value: float | None) -> str:
    """As short as it is exact enough; None does not apply."""
    return "–" if value is None else f"{value:.4g}"


@register.filter
def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1000:.1f} s" if value >= 1000 else f"{value:.0f} ms" if value >= 10 else f"{value:.2g} ms"


@register.filter
def group_name(group: str) -> str:
    return lessons.GROUPS.get(group, group)


@register.filter
def cut(text: Any, most: int) -> str:
    """For looking at; the number of characters left out is said."""
    shown = str(text)
    return shown if len(shown) <= most else f"{shown[:most]}… ({len(shown) - most:,} more characters)"


@register.filter
def ratio(part: int, whole: int) -> str:
    """For a progress bar; empty, and so without an end, while the whole is not known."""
    return f"{part / whole:.3f}" if whole else ""
