"""A number of a schema is a number: neither true nor a text stands in for one, in whatever form it came."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest

from engine.chat_spec import ChatOrder
from engine.grader_spec import parse_grader
from engine.spec import LoraSpec, SpecError, parse_as, parse_job
from engine.strict import NUMBER, Strict

SCHEMAS = ("blob_spec", "chat_spec", "environment_spec", "grader_spec", "probe_spec", "spec", "train_spec", "rewards.lab")
FIELDS = ("lora.rank", "train.learning_rate", "train.dual_clip", "rollout.temperature", "warm_start.version")


def job(**changes: Any) -> dict[str, Any]:
    dataset = {"version": "d", "train": {"sha256": "0" * 64, "bytes": 1}, "train_rows": 100}
    return {"base_model": "tiny", "dataset": dataset, "grader": {"type": "string_check"}, **changes}


def with_field(path: str, value: Any) -> dict[str, Any]:
    section, field = path.split(".")
    return job(**{section: {field: value, **({"job": "job_a"} if section == "warm_start" else {})}})


@pytest.mark.parametrize(("value", "told"), [(True, "true"), (False, "false"), ("8", "the text '8'"), ("", "the text ''"), ("x", "'x'")])
@pytest.mark.parametrize("path", FIELDS)
def test_what_is_no_number_is_refused_at_its_field(path, value, told):
    with pytest.raises(SpecError) as refused:
        parse_job(with_field(path, value))

    [(field, message)] = refused.value.problems
    assert (field, message.startswith("Input should be a valid number, not "), told in message) == (path, True, True)


def test_all_that_are_none_are_named_at_once():
    with pytest.raises(SpecError) as refused:
        parse_job(job(lora={"rank": True, "alpha": "32"}, train={"steps": "many"}))

    assert {field for field, _ in refused.value.problems} == {"lora.rank", "lora.alpha", "train.steps"}


def test_numbers_stay_numbers_as_json_writes_them():
    parsed = parse_job(job(lora={"rank": 8.0}, train={"learning_rate": 0, "dual_clip": None}, rollout={"temperature": 1}))
    assert (parsed.lora.rank, type(parsed.lora.rank), parsed.train.learning_rate, parsed.train.dual_clip) == (8, int, 0.0, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [("absolute_tolerance", True), ("absolute_tolerance", "0.1"), ("relative_tolerance", "0")],
)
def test_a_grader_s_numbers_are_numbers(field, value):
    with pytest.raises(SpecError) as refused:
        parse_grader({"type": "numeric", field: value})
    assert [path for path, _ in refused.value.problems] == [field]


def test_a_range_s_ends_are_numbers():
    with pytest.raises(SpecError) as refused:
        parse_grader({"type": "python", "source": "def grade(sample, item): ...", "range": [False, "1"]})
    assert [path for path, _ in refused.value.problems] == ["range.0", "range.1"]


def test_a_chat_s_numbers_are_numbers():
    with pytest.raises(SpecError) as refused:
        parse_as(ChatOrder, {"tenant": "t", "messages": [{"role": "user", "content": "x"}], "n": True, "max_new_tokens": "5"})
    assert [path for path, _ in refused.value.problems] == ["n", "max_new_tokens"]


def test_limits_are_kept_and_told_in_the_schema():
    with pytest.raises(SpecError) as refused:
        parse_job(job(lora={"rank": 0}, warm_start={"job": "job_a", "version": -1}, train={"dual_clip": 0}))
    assert {path for path, _ in refused.value.problems} == {"lora.rank", "train.dual_clip", "warm_start.version"}
    rank = LoraSpec.model_json_schema()["properties"]["rank"]
    assert (rank["type"], rank["minimum"], rank["maximum"]) == ("integer", 1, 512)


@pytest.mark.parametrize("module", SCHEMAS)
def test_no_schema_has_a_number_that_takes_anything_else(module):
    found = vars(importlib.import_module(f"engine.{module}")).values()
    models = [model for model in found if isinstance(model, type) and issubclass(model, Strict)]
    assert [
        f"{model.__name__}.{name}"
        for model in models
        for name, field in model.model_fields.items()
        if any(lax(field.annotation, field.metadata))
    ] == []


def lax(annotation: Any, metadata: Any) -> Iterator[bool]:
    """For each number in a field's type: whether nothing looks at what is given for it."""
    if NUMBER in metadata:
        return
    if annotation in (int, float):
        yield True
    elif get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        yield from lax(inner, more)
    elif get_origin(annotation) is not Literal:
        for inner in get_args(annotation):
            yield from lax(inner, ())
