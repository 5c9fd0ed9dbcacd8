"""Grader templates: ``{{item.column}}``, ``{{sample.output_text}}``, ``{{sample.output_json.path}}``, ``{{sample.tool_calls}}``.

What stands after ``item.`` is one column's name, dots and all; what stands after ``sample.output_json.`` is a path of keys and list
positions. ``problems`` finds at the door what could never be filled; ``render`` raises ``TemplateError`` for what a row lacks, and
``NotJson`` for what the completion lacks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from engine.rewards.sample import NotJson, Sample

_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ITEM = re.compile(r"item\.(?P<column>\S.*)", re.DOTALL)
_JSON_PATH = re.compile(r"sample\.output_json(?:\.(?P<path>[^\s.]+(?:\.[^\s.]+)*))?")
_PLAIN = ("sample.output_text", "sample.tool_calls")
_WAYS = "{{item.<column>}}, {{sample.output_text}}, {{sample.output_json}} and {{sample.tool_calls}}"


class TemplateError(ValueError):
    """A template that this row cannot fill; the message names the template."""


def placeholders(template: str) -> Iterator[str]:
    """The names inside double braces, without white space around them."""
    return (match.group(1).strip() for match in _PLACEHOLDER.finditer(template))


def columns_of(template: str) -> set[str]:
    """The dataset columns that ``template`` needs."""
    return {match["column"] for name in placeholders(template) if (match := _ITEM.fullmatch(name))}


def shows_completion(template: str) -> bool:
    return any(name.startswith("sample.") for name in placeholders(template))


def problems(template: str, columns: Collection[str] | None = None) -> list[str]:
    """What is wrong with ``template``, in sentences; empty when nothing is. ``columns`` None skips the look into the dataset."""
    found = [fault for name in placeholders(template) if (fault := _fault(name, columns))]
    rest = _PLACEHOLDER.sub("", template)
    if "{{" in rest or "}}" in rest:
        found.append("has unbalanced double braces")
    return found


def render(template: str, *, sample: Sample, item: Mapping[str, Any], frame: Callable[[str], str] = str) -> str:
    """``template`` filled for one completion; what the model wrote goes through ``frame``. Raises ``TemplateError``, ``NotJson``."""
    return _PLACEHOLDER.sub(lambda match: _value(match.group(1).strip(), template, sample, item, frame), template)


def _fault(name: str, columns: Collection[str] | None) -> str | None:
    if name in _PLAIN or _JSON_PATH.fullmatch(name):
        return None
    item = _ITEM.fullmatch(name)
    if item is None:
        return f"{{{{{name[:80]}}}}} means nothing; there are {_WAYS}"
    if columns is not None and item["column"] not in columns:
        return f"there is no column {item['column']} in every row; there are {', '.join(sorted(columns)) or 'none'}"
    return None


def _value(name: str, template: str, sample: Sample, item: Mapping[str, Any], frame: Callable[[str], str]) -> str:
    if fault := _fault(name, item.keys()):
        raise TemplateError(f"template {template[:200]!r} {fault}")
    if column := _ITEM.fullmatch(name):
        return _text(item[column["column"]])
    if name == "sample.output_text":
        return frame(sample.output_text)
    if name == "sample.tool_calls":
        return frame(_text([dict(call) for call in sample.tool_calls]))
    return frame(_text(_at(sample.output_json, _JSON_PATH.fullmatch(name)["path"])))


def _at(document: Any, path: str | None) -> Any:
    for key in path.split(".") if path else ():
        if isinstance(document, dict) and key in document:
            document = document[key]
        elif isinstance(document, list) and key.isdecimal() and len(key) < 10 and int(key) < len(document):
            document = document[int(key)]
        else:
            raise NotJson(f"the answer has no {path}")
    return document


def _text(value: Any) -> str:
    """A string stays as it is; anything else reads as it stands in JSON (true, 0.5, null)."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
