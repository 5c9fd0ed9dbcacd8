"""Drawings and words of the datasets' pages."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from portal.datasets.sources import FORMATS
from portal.datasets.text import ENCODINGS

register = template.Library()
_WIDTH, _HEIGHT, _GAP = 480.0, 120.0, 2.0


@register.simple_tag
def histogram(lengths: dict[str, Any]) -> SafeString:
    """Bars of the prompts' lengths. The same figures stand in a table beside it, so it is a picture with a name."""
    bins = lengths["histogram"]
    tallest = max((entry["rows"] for entry in bins), default=1) or 1
    across = _WIDTH / max(1, len(bins))
    limit = lengths.get("limit")
    bars = (
        (
            "bar-over" if limit is not None and entry["from"] > limit else "bar",
            f"{index * across:.1f}",
            f"{_HEIGHT - entry['rows'] / tallest * _HEIGHT:.1f}",
            f"{max(1.0, across - _GAP):.1f}",
            f"{entry['rows'] / tallest * _HEIGHT:.1f}",
        )
        for index, entry in enumerate(bins)
    )
    label = f"Prompt lengths: half have at most {lengths['p50']} tokens, the longest has {lengths['max']}"
    return format_html(
        '<svg class="histogram" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        _WIDTH,
        _HEIGHT,
        label,
        format_html_join("", '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>', bars),
    )


@register.filter
def format_name(kind: str | None) -> str:
    return FORMATS.get(kind or "", "–")


@register.filter
def encoding_name(kind: str | None) -> str:
    return ENCODINGS.get(kind or "", "–")


@register.filter
def cause(word: str) -> str:
    """A cause's word, for people: ``broken_json`` is Broken JSON."""
    return _CAUSES.get(word, word.replace("_", " ").capitalize())


_CAUSES = {
    "broken_json": "Broken JSON",
    "broken_csv": "Broken CSV",
    "broken_parquet": "Broken Parquet",
    "not_an_object": "Not an object",
    "nul": "NUL characters",
    "no_prompt": "No prompt",
    "no_answer": "No answer",
    "bomb": "Decompression bomb",
    "duplicate": "Repeated prompts",
    "duplicate_key": "Repeated keys",
    "ragged": "Uneven columns",
    "leak": "Held-out prompts that are trained on",
    "over_long": "Too long for the model",
}
