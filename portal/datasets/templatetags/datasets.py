"""Drawings and words of the datasets' pages."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.safestring import SafeString

from portal.datasets.sources import FORMATS
from portal.datasets.text import ENCODINGS
from portal.histogram import histogram_svg

register = template.Library()


@register.simple_tag
def histogram(lengths: dict[str, Any]) -> SafeString:
    """Bars of the prompts' lengths. The same figures stand in a table beside it, so it is a picture with a name."""
    limit = lengths.get("limit")
    label = f"Prompt lengths: half have at most {lengths['p50']} tokens, the longest has {lengths['max']}"
    return histogram_svg(lengths["histogram"], label, is_over=lambda entry: limit is not None and entry["from"] > limit)


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
