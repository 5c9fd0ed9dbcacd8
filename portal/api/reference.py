"""The API's schema as people read it: operations by noun, each with what it takes, what it answers and a line to try it with.

Pure functions of an OpenAPI document; the page shows what they give.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

DEPTH = 3  # of fields within fields that are told by name
LARGEST = 2**31 - 1  # from here on a limit is the column's, not ours
_METHODS = ("get", "post", "patch", "put", "delete")
_LIMITS = {
    **{"minimum": "at least {}", "exclusiveMinimum": "above {}", "maximum": "at most {}", "exclusiveMaximum": "below {}"},
    **{"minLength": "{} characters or more", "maxLength": "{} characters or fewer", "minItems": "{} or more", "maxItems": "{} or fewer"},
}
_FORMATS = {"date-time": "time", "email": "e-mail address", "binary": "file", "uri": "address"}
_CHOICES = re.compile(r"^\* .*\n?", re.MULTILINE)  # which the generator lists once more
_WAYS = 4  # of which a value may be one, before the rest is left out


@dataclass(frozen=True, kw_only=True)
class Field:
    """``name`` is dotted; ``[]`` stands for each item of a list."""

    name: str
    kind: str
    words: str
    limits: str
    required: bool


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: str
    words: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """``scope``: what a token needs, as ``jobs:read``; "" where every token will do, None where none is asked for."""

    id: str
    method: str
    path: str
    words: str
    scope: str | None
    role: str
    parameters: tuple[Field, ...]
    body: tuple[Field, ...]
    answers: tuple[Answer, ...]
    example: str

    @property
    def refusals(self) -> tuple[Answer, ...]:
        return tuple(answer for answer in self.answers if answer.status >= "4")

    @property
    def given(self) -> tuple[Answer, ...]:
        return tuple(answer for answer in self.answers if answer.status < "4")

    def says(self, text: str) -> bool:
        """Whether ``text`` (small letters) is in what a reader would look for."""
        names = (field.name for field in (*self.parameters, *self.body))
        return text in " ".join((self.method, self.path, self.words, self.scope or "", *names)).lower()


@dataclass(frozen=True, kw_only=True)
class Group:
    noun: str
    operations: tuple[Operation, ...]

    @property
    def title(self) -> str:
        return self.noun.replace("-", " ").capitalize()


def groups(schema: Mapping[str, Any], base: str) -> tuple[Group, ...]:
    """In the schema's order. ``base``: the site's address, for the examples."""
    found: dict[str, list[Operation]] = {}
    for path, operations in schema["paths"].items():
        for method in _METHODS:
            if method in operations:
                said = operations[method]
                found.setdefault(said["tags"][0], []).append(_Reader(schema).operation(path, method, said, base))
    return tuple(Group(noun=noun, operations=tuple(operations)) for noun, operations in found.items())


def matching(all_groups: tuple[Group, ...], text: str) -> tuple[Group, ...]:
    """Those that say each word of ``text``, without the groups that have none."""
    words = text.lower().split()
    kept = ((group.noun, tuple(one for one in group.operations if all(map(one.says, words)))) for group in all_groups)
    return tuple(Group(noun=noun, operations=operations) for noun, operations in kept if operations)


class _Reader:
    def __init__(self, schema: Mapping[str, Any]):
        self._shapes = schema["components"]["schemas"]

    def operation(self, path: str, method: str, said: Mapping[str, Any], base: str) -> Operation:
        asked = said.get("parameters", ())
        kind, body = next(iter(said.get("requestBody", {}).get("content", {}).items()), ("", {}))
        fields = tuple(self._fields(body.get("schema", {})))
        return Operation(
            id=said["operationId"].removeprefix("api_v1_").replace("_", "-"),
            method=method.upper(),
            path=path,
            words=said.get("description", ""),
            scope=said.get("x-scope"),
            role=said.get("x-role", ""),
            parameters=tuple(self._parameter(one) for one in asked),
            body=fields,
            answers=tuple(self._answer(status, answer) for status, answer in sorted(said["responses"].items())),
            example=_example(base, path, method, kind, fields, asks="x-scope" in said),
        )

    def _parameter(self, one: Mapping[str, Any]) -> Field:
        shape = one.get("schema", {})
        where = {"path": "in the address", "header": "header"}.get(one["in"], "")
        limits = ", ".join(filter(None, (where, self._limits(shape))))
        return Field(
            name=one["name"], kind=self._kind(shape), words=one.get("description", ""), limits=limits, required=one.get("required", False)
        )

    def _answer(self, status: str, answer: Mapping[str, Any]) -> Answer:
        content = next(iter(answer.get("content", {}).values()), {}) if status < "4" else {}
        return Answer(status=status, words=answer.get("description", ""), fields=tuple(self._fields(content.get("schema", {}))))

    def _fields(self, shape: Any, prefix: str = "", depth: int = DEPTH) -> Iterator[Field]:
        shape = self._whole(shape)
        if shape.get("type") == "array":
            yield from self._fields(shape.get("items", {}), f"{prefix.rstrip('.')}[]." if prefix else "", depth)
        needed = shape.get("required", ())
        for name, inner in shape.get("properties", {}).items():
            whole = self._whole(inner)
            words = _CHOICES.sub("", inner.get("description") or whole.get("description", ""))
            yield Field(
                name=prefix + name, kind=self._kind(inner), words=words, limits=self._limits(whole), required=not prefix and name in needed
            )
            if depth > 1:
                yield from self._fields(whole, f"{prefix}{name}.", depth - 1)

    def _whole(self, shape: Any) -> Mapping[str, Any]:
        """What a reference stands for; of "this or null" this."""
        if not isinstance(shape, Mapping):
            return {}
        if "$ref" in shape:
            return self._whole(self._shapes[shape["$ref"].rpartition("/")[2]])
        ways = shape.get("oneOf") or shape.get("anyOf") or shape.get("allOf") or ()
        real = [way for way in ways if way != {"type": "null"}]
        return {**self._whole(real[0]), **{k: v for k, v in shape.items() if k in ("description", "default")}} if len(real) == 1 else shape

    def _kind(self, shape: Any) -> str:
        if not isinstance(shape, Mapping) or not shape:
            return "anything"
        if "$ref" in shape:
            return self._kind(self._whole(shape))
        for word in ("oneOf", "anyOf", "allOf"):
            if word in shape:
                kinds = list(dict.fromkeys(self._kind(way) for way in shape[word]))
                return " or ".join(kinds if len(kinds) <= _WAYS else [*kinds[:_WAYS], "others"])
        kind = shape.get("type", "anything")
        if isinstance(kind, list):
            return " or ".join(one if one == "null" else self._kind({**shape, "type": one}) for one in kind)
        if kind == "array":
            return f"list of {self._kind(shape.get('items', {}))}"
        return _FORMATS.get(shape.get("format", "") or ("binary" if "contentMediaType" in shape else ""), kind)

    def _limits(self, shape: Mapping[str, Any]) -> str:
        said = [", ".join(map(_literal, shape["enum"]))] if "enum" in shape else []
        said += [words.format(f"{shape[name]:,}") for name, words in _LIMITS.items() if abs(shape.get(name, LARGEST)) < LARGEST]
        return ", ".join(said + ([f"{_literal(shape['default'])} unless given"] if "default" in shape else []))


def _literal(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _example(base: str, path: str, method: str, kind: str, fields: tuple[Field, ...], *, asks: bool) -> str:
    """A line for a shell, with what must be given as ``…``; tokens are taken from the environment."""
    words = ["curl", *(("-X", method.upper()) if method != "get" else ())]
    words += ['-H "Authorization: Bearer $MARL_TOKEN"'] if asks else []
    wanted = [field for field in fields if field.required]
    if kind == "multipart/form-data":
        words += [f"-F {field.name}={'@rows.jsonl' if field.kind == 'file' else '…'}" for field in wanted]
    elif kind:
        body = {field.name: _PLACEHOLDERS.get(field.kind, "…") for field in wanted}
        words += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(body, ensure_ascii=False)}'"]
    return " ".join([*words, f"'{base}{re.sub(r'{([a-z_]+)}', lambda match: match[1].upper(), path)}'"])


_PLACEHOLDERS: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "object": {}}
