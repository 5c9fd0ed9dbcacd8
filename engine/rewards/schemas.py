"""JSON schemas of tenants, checked at the door: a schema that gets through can be validated against, in bounded time and without network.

Validation itself runs in a child process that can be killed (``children``): a ``pattern`` can make any regular expression engine slow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.validators import validator_for

from engine.rewards.sample import depth

MAX_BYTES = 64 * 1024
MAX_DEPTH = 40
MAX_PATTERN_CHARACTERS = 500
# How many subschemas one value may be held against; references into one another can double at every step.
MAX_EXPANSIONS = 10_000
DRAFTS = tuple(
    f"{site}/schema{end}"
    for site, end in (
        ("https://json-schema.org/draft/2020-12", ""),
        ("https://json-schema.org/draft/2019-09", ""),
        *(("http://json-schema.org/draft-07", end) for end in ("", "#")),
        *(("http://json-schema.org/draft-06", end) for end in ("", "#")),
        *(("http://json-schema.org/draft-04", end) for end in ("", "#")),
    )
)
_UNWANTED = ("$dynamicRef", "$recursiveRef", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor")
# Keywords whose subschemas look at the same value again, and how their subschemas are held.
_SAME_VALUE_ONE = ("not", "if", "then", "else")
_SAME_VALUE_LIST = ("allOf", "anyOf", "oneOf")
_SAME_VALUE_MAP = ("dependentSchemas", "dependencies")
_BELOW_ONE = (
    *("additionalProperties", "propertyNames", "contains", "additionalItems", "items"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
_BELOW_LIST = ("prefixItems", "items")
_BELOW_MAP = ("properties", "patternProperties", "$defs", "definitions")


class SchemaProblem(ValueError):
    """Why a schema is refused: where in it, and what to mend."""


def check(schema: dict[str, Any]) -> None:
    """Raises ``SchemaProblem``."""
    if depth(schema, MAX_DEPTH) > MAX_DEPTH:
        raise SchemaProblem(f"is nested more than {MAX_DEPTH} deep")
    if len(json.dumps(schema)) > MAX_BYTES:
        raise SchemaProblem(f"is larger than {MAX_BYTES // 1024} kB")
    if (draft := schema.get("$schema", DRAFTS[0])) not in DRAFTS:
        raise SchemaProblem(f"names the draft {str(draft)[:80]!r}; use {DRAFTS[0]}")
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        raise SchemaProblem(f"at {_where(error.absolute_path)}: {error.message[:200]}") from None
    except RecursionError:
        raise SchemaProblem("is nested too deeply") from None
    except OverflowError as error:
        raise SchemaProblem(f"holds a pattern that cannot be read: {error}") from None
    for path, part in _subschemas(schema, ()):
        _check_part(schema, path, part)
    _count(schema, schema, {}, set())


def _check_part(root: dict[str, Any], path: tuple[Any, ...], part: dict[str, Any]) -> None:
    for keyword in _UNWANTED:
        if keyword in part:
            raise SchemaProblem(f"at {_where(path)}: {keyword} is not supported; point into the schema itself, as in #/$defs/name")
    if "$schema" in part and path:
        raise SchemaProblem(f"at {_where(path)}: $schema belongs at the top only")
    if "$ref" in part:
        _target(root, part["$ref"], path)
    patterns = [part["pattern"]] if "pattern" in part else []
    for pattern in (*patterns, *part.get("patternProperties", ())):
        _check_pattern(pattern, path)


def _check_pattern(pattern: str, path: tuple[Any, ...]) -> None:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise SchemaProblem(f"at {_where(path)}: a pattern is longer than {MAX_PATTERN_CHARACTERS} characters")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise SchemaProblem(f"at {_where(path)}: the pattern {pattern[:60]!r} cannot be read: {error}") from None


def _target(root: dict[str, Any], reference: Any, path: tuple[Any, ...]) -> dict[str, Any] | bool:
    """The subschema that ``reference`` points at, within ``root`` only."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise SchemaProblem(f"at {_where(path)}: $ref {str(reference)[:80]!r} leaves the schema; only #/… is followed")
    found: Any = root
    for key in reference.split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and len(key) < 6 and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            raise SchemaProblem(f"at {_where(path)}: $ref {reference[:80]!r} points at nothing")
    if not isinstance(found, dict | bool) or not any(found is part for _, part in _subschemas(root, (), booleans=True)):
        raise SchemaProblem(f"at {_where(path)}: $ref {reference[:80]!r} points at something that is no schema")
    return found


def _subschemas(schema: Any, path: tuple[Any, ...], *, booleans: bool = False) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every subschema object with its path, ``schema`` first; what stands under enum, const, default or examples is no schema."""
    if not isinstance(schema, dict):
        if booleans and isinstance(schema, bool):
            yield path, schema
        return
    yield path, schema
    for keyword, value in schema.items():
        if keyword in (*_SAME_VALUE_ONE, *_BELOW_ONE) and isinstance(value, dict | bool):
            yield from _subschemas(value, (*path, keyword), booleans=booleans)
        elif keyword in (*_SAME_VALUE_LIST, *_BELOW_LIST) and isinstance(value, list):
            for index, part in enumerate(value):
                yield from _subschemas(part, (*path, keyword, index), booleans=booleans)
        elif keyword in (*_SAME_VALUE_MAP, *_BELOW_MAP) and isinstance(value, dict):
            for name, part in value.items():
                yield from _subschemas(part, (*path, keyword, name), booleans=booleans)


def _count(root: dict[str, Any], schema: Any, known: dict[int, int], above: set[int]) -> int:
    """How many subschemas are held against one value; refuses circles that never reach into the value, and too many."""
    if not isinstance(schema, dict):
        return 1
    if id(schema) in above:
        raise SchemaProblem("holds a $ref that leads back to itself without reaching into the value")
    if id(schema) not in known:
        parts = list(_same_value(root, schema))
        known[id(schema)] = 1 + sum(_count(root, part, known, above | {id(schema)}) for part in parts)
        for _, part in _subschemas(schema, ()):
            if part is not schema:
                _count(root, part, known, set())
    if known[id(schema)] > MAX_EXPANSIONS:
        raise SchemaProblem(f"holds one value against more than {MAX_EXPANSIONS} subschemas")
    return known[id(schema)]


def _same_value(root: dict[str, Any], schema: dict[str, Any]) -> Iterator[Any]:
    if "$ref" in schema:
        yield _target(root, schema["$ref"], ())
    yield from (schema[keyword] for keyword in _SAME_VALUE_ONE if keyword in schema)
    for keyword in _SAME_VALUE_LIST:
        yield from schema.get(keyword, ())
    for keyword in _SAME_VALUE_MAP:
        yield from (part for part in schema.get(keyword, {}).values() if isinstance(part, dict))


def _where(path: Any) -> str:
    return "/".join(str(part) for part in path)[:120] or "the top"
