"""Sentences of the schema as HTML: what stands between backticks is code."""

from __future__ import annotations

import re

from django import template
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

register = template.Library()


@register.simple_tag
def coded(text: str) -> SafeString:
    """Its paragraphs."""
    return mark_safe("".join(format_html("<p>{}</p>", _with_code(part)) for part in re.split(r"\n\s*\n", text.strip()) if part))


@register.simple_tag
def firstline(text: str) -> SafeString:
    """Its first sentence, or what stands before a blank line."""
    first = re.split(r"\n\s*\n|(?<=[.:;]) ", text.strip(), maxsplit=1)[0]
    return _with_code(first.rstrip(":;"))


def _with_code(text: str) -> SafeString:
    parts = re.split(r"(`+)(.+?)\1", text)  # before, ticks, code, before, …
    words = (format_html("<code>{}</code>", part) if n % 3 == 2 else conditional_escape(part) for n, part in enumerate(parts) if n % 3 != 1)
    return mark_safe("".join(words))
