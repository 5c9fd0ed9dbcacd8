"""Grader templates: ``{{item.column}}`` and ``{{sample.output_text}}``, nothing else.

``render`` raises ``TemplateError`` naming the template and what it lacks; ``check`` finds the same faults at the door, before a job starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ITEM = re.compile(r"item\.(?P<column>\S.*)", re.DOTALL)
_SAMPLE_TEXT = "sample.output_text"


class TemplateError(ValueError):
    """A template that cannot be filled; the message names the template."""


def render(template: str, *, text: str, item: Mapping[str, Any]) -> str:
    """``template`` with its placeholders filled from one completion's ``text`` and its row's ``item``."""
    return _PLACEHOLDER.sub(lambda match: _value(match.group(1).strip(), template, text, item), template)


def check(template: str, columns: Collection[str] | None = None) -> list[str]:
    """What is wrong with ``template``, in sentences; empty when nothing is. ``columns`` None skips the look into the dataset."""
    problems = []
    for match in _PLACEHOLDER.finditer(template):
        problem = _placeholder_problem(match.group(1).strip(), columns)
        if problem:
            problems.append(f"{template!r} {problem}")
    rest = _PLACEHOLDER.sub("", template)
    if "{{" in rest or "}}" in rest:
        problems.append(f"{template!r} has unbalanced double braces")
    return problems


def _placeholder_problem(name: str, columns: Collection[str] | None) -> str | None:
    if name == _SAMPLE_TEXT:
        return None
    item = _ITEM.fullmatch(name)
    if item is None:
        return f"uses {{{{{name}}}}}; only {{{{item.<column>}}}} and {{{{sample.output_text}}}} exist"
    if columns is not None and item["column"] not in columns:
        return f"needs the column {item['column']!r}; the dataset has {', '.join(sorted(columns)) or 'none'}"
    return None


def _value(name: str, template: str, text: str, item: Mapping[str, Any]) -> str:
    problem = _placeholder_problem(name, item.keys())
    if problem:
        raise TemplateError(f"template {template!r} {problem}")
    if name == _SAMPLE_TEXT:
        return text
    value = item[name.removeprefix("item.")]
    # A string stays as it is; anything else reads as it stood in the dataset's JSON (true, 0.5, null).
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
