"""A histogram as an SVG made here: it needs no script and follows the page's colours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

_WIDTH, _HEIGHT, _GAP = 480.0, 120.0, 2.0
Bin = Mapping[str, Any]


def histogram_svg(bins: Sequence[Bin], label: str, *, is_over: Callable[[Bin], bool] = lambda entry: False) -> SafeString:
    """Bars as high as each bin's ``rows``; those that are ``is_over`` stand out. ``label`` is what a screen reader says."""
    tallest = max((entry["rows"] for entry in bins), default=1) or 1
    across = _WIDTH / max(1, len(bins))
    width = f"{max(1.0, across - _GAP):.1f}"
    bars = (
        ("bar-over" if is_over(entry) else "bar", f"{n * across:.1f}", f"{_HEIGHT - height:.1f}", width, f"{height:.1f}")
        for n, entry in enumerate(bins)
        for height in [entry["rows"] / tallest * _HEIGHT]
    )
    return format_html(
        '<svg class="histogram" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        *(_WIDTH, _HEIGHT, label),
        format_html_join("", '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>', bars),
    )
