"""The references that a grader's templates make, checked before a job starts: ``{{item.answer}}``, ``{{sample.output_text}}``.

The engine fills them in with the same rules: what stands after ``item.`` is one column's name, dots and all.
"""

from __future__ import annotations

import re
from typing import Any

_REFERENCE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ITEM = re.compile(r"item\.(\S.*)", re.DOTALL)
_FIELDS = ("input", "reference")


def problems(grader: dict[str, Any], columns: list[str] | None) -> list[tuple[str, str]]:
    """What is wrong with each template of ``grader``; against ``columns`` too, unless None (no dataset chosen yet)."""
    return [(f"grader.{field}", message) for field in _FIELDS for message in _faults(grader.get(field) or "", columns)]


def _faults(template: str, columns: list[str] | None) -> list[str]:
    found = [_fault(inner.strip(), columns) for inner in _REFERENCE.findall(template)]
    rest = _REFERENCE.sub("", template)
    if "{{" in rest or "}}" in rest:
        found.append("has unbalanced double braces")
    return [message for message in found if message]


def _fault(name: str, columns: list[str] | None) -> str | None:
    if name == "sample.output_text":
        return None
    item = _ITEM.fullmatch(name)
    if item is None:
        return f"{{{{{name}}}}} means nothing; write {{{{item.<column>}}}} or {{{{sample.output_text}}}}"
    if columns is not None and item[1] not in columns:
        return f"the dataset has no column {item[1]} in every row; it has {', '.join(columns) or 'none'}"
    return None
