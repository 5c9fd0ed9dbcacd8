from __future__ import annotations

import pytest

from engine.rewards.schemas import SchemaProblem, check


def nested(depth: int) -> dict:
    schema: dict = {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


def doubling(depth: int) -> dict:
    both = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 2} for n in range(1, depth)}
    return {"$defs": {"d0": {}, **both}, "properties": {"a": {"$ref": f"#/$defs/d{depth - 1}"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]},
        {"properties": {"children": {"type": "array", "items": {"$ref": "#"}}}},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"pattern": "^x+$"}}},
        {"enum": [{"$ref": "https://example.com"}], "default": {"pattern": "("}, "properties": {"$id": {"type": "string"}}},
        doubling(8),
        nested(35),
    ],
)
def test_what_people_write_gets_in(schema):
    check(schema)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "objekt"}, "at type"),
        ({"properties": {"a": {"minimum": "1"}}}, "at properties/a/minimum"),
        ({"$ref": "https://example.com/s.json"}, "leaves the schema"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "leaves the schema"),
        ({"$ref": "#/$defs/gone"}, "points at nothing"),
        ({"$ref": "#anchor"}, "leaves the schema"),
        ({"$ref": "#/properties", "properties": {}}, "no schema"),
        ({"$id": "https://example.com/s", "properties": {}}, "$id is not supported"),
        ({"$dynamicRef": "#a"}, "$dynamicRef is not supported"),
        ({"$schema": "https://example.com/meta"}, "draft"),
        ({"$ref": "#"}, "back to itself"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}}, "back to itself"),
        ({"pattern": "("}, "regex"),
        ({"pattern": "a{99999999999}"}, "cannot be read"),
        ({"patternProperties": {"[": {}}}, "regex"),
        ({"pattern": "a" * 501}, "longer than 500"),
        ({"const": "x" * 70_000}, "larger than 64 kB"),
        (nested(60), "nested more than"),
        (doubling(30), "more than 10000 subschemas"),
    ],
)
def test_what_could_not_be_checked_in_bounded_time_is_refused_with_its_place(schema, why):
    with pytest.raises(SchemaProblem) as refused:
        check(schema)
    assert why in str(refused.value)
