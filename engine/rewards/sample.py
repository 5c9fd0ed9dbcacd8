"""One completion as graders see it: its text, the JSON in it, and the tool calls that it made."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

# Beyond this a completion is no answer in JSON; parsing it would only cost time.
MAX_JSON_CHARACTERS = 1_000_000
# Deeper than any answer, and shallow enough for everything that walks it afterwards.
MAX_JSON_DEPTH = 100
_FENCED = re.compile(r"\s*```(?:json|JSON)?[ \t]*\n(?P<body>.*?)\n?[ \t]*```\s*", re.DOTALL)


class NotJson(ValueError):
    """The completion is no JSON document: the model's fault, and so a wrong answer, not a failed grading."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """``tool_calls``: plain JSON objects, in the order of the calls."""

    output_text: str
    tool_calls: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def output_json(self) -> Any:
        """The text as JSON; a text that is one fenced block counts as its content. Raises ``NotJson``."""
        return parse_json(self.output_text)

    def as_dict(self) -> dict[str, Any]:
        """What a tenant's own code or endpoint receives; ``output_json`` is null when the text is no JSON."""
        try:
            parsed = self.output_json
        except NotJson:
            parsed = None
        return {"output_text": self.output_text, "output_json": parsed, "tool_calls": [dict(call) for call in self.tool_calls]}


def parse_json(text: str) -> Any:
    """The JSON document that ``text`` is, alone or in one fenced block. NaN and Infinity are no JSON. Raises ``NotJson``."""
    if len(text) > MAX_JSON_CHARACTERS:
        raise NotJson(f"longer than {MAX_JSON_CHARACTERS} characters")
    fenced = _FENCED.fullmatch(text)
    try:
        document = json.loads(fenced["body"] if fenced else text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None
    if depth(document, MAX_JSON_DEPTH) > MAX_JSON_DEPTH:
        raise NotJson(f"nested more than {MAX_JSON_DEPTH} deep")
    return document


def depth(document: Any, most: int) -> int:
    """How deep ``document`` is nested, counted to just beyond ``most``; without recursion, which deep documents break."""
    deepest, waiting = 0, [(document, 1)]
    while waiting and deepest <= most:
        value, level = waiting.pop()
        deepest = max(deepest, level)
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting += [(part, level + 1) for part in inner]
    return deepest


def _refuse(constant: str) -> None:
    raise NotJson(f"{constant} is no JSON")
