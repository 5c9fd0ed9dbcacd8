"""The door of graders: each configuration is either refused with its field, or can grade (``rewards/test_pool.py`` grades every type)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.grader_spec import TYPES, Grader, parse_grader, shown, template_problems
from engine.spec import SpecError, check_against, parse_job
from tests.engine.world import MODEL

GRADE = "def grade(sample, item):\n    return 1\n"
MESSAGES = [{"role": "user", "content": "{{sample.output_text}}"}]
GOOD: dict[str, dict[str, Any]] = {
    "string_check": {},
    "numeric": {},
    "math": {},
    "text_similarity": {"evaluation_metric": "bleu"},
    "json_schema": {"json_schema": {"type": "object"}},
    "python": {"source": GRADE},
    "code_exec": {},
    "http": {"url": "https://grader.example.com/", "signing_secret": "s" * 32},
    "score_model": {"model": "judge", "input": MESSAGES},
    "label_model": {"model": "judge", "input": MESSAGES, "labels": ["yes", "no"], "passing_labels": ["yes"]},
    "multi": {"graders": {"a": {"type": "numeric"}}, "calculate_output": "a"},
}


def good(type: str, **changes: Any) -> dict[str, Any]:
    return {"type": type, **GOOD[type], **changes}


def multi(formula: str, **graders: Any) -> dict[str, Any]:
    return good("multi", graders=graders, calculate_output=formula)


def problems(raw: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as refused:
        parse_grader(raw)
    return dict(refused.value.problems)


def test_every_type_has_a_good_example_here():
    assert set(GOOD) == set(TYPES)


@pytest.mark.parametrize("type", TYPES)
def test_what_was_accepted_is_accepted_again_as_it_was_stored(type):
    grader = parse_grader(good(type))

    assert parse_grader(grader.model_dump(mode="json")) == grader
    assert grader.name == type


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({}, "type"),
        ({"type": "guess"}, "type"),
        (good("math", speed=1), "speed"),
        (good("string_check", input="{{output}}"), "input"),
        (good("text_similarity", evaluation_metric="cosine"), "evaluation_metric"),
        (good("text_similarity", evaluation_metric="rouge_6"), "evaluation_metric"),
        (good("json_schema", json_schema={"$ref": "https://example.com"}), "json_schema"),
        (good("json_schema", json_schema=[]), "json_schema"),
        (good("python", source=GRADE, range=[1, 0]), "range"),
        (good("python", source=GRADE, range=[0, 1e9]), "range.1"),
        (good("code_exec", seconds=0), "seconds"),
        (good("code_exec", tests="{{item.tests"), "tests"),
        (good("http", url="https://127.0.0.1/"), "url"),
        (good("http", signing_secret="short"), "signing_secret"),
        (good("http", signing_secret="ü" * 20), "signing_secret"),
        (good("score_model", input=[]), "input"),
        (good("score_model", input=[{"role": "user", "content": "{{item.answer}}"}]), "input"),
        (good("score_model", input=[{"role": "user", "content": "{{sample.x}}"}]), "input.0.content"),
        (good("score_model", input=[{"role": "boss", "content": "{{sample.output_text}}"}]), "input.0.role"),
        (good("score_model", sampling_params={"temperature": 3}), "sampling_params.temperature"),
        (good("label_model", passing_labels=["maybe"]), "passing_labels"),
        (good("label_model", passing_labels=["yes", "no"]), "passing_labels"),
        (good("label_model", labels=["yes", "yes"]), "labels"),
        (multi("a", a={"type": "math", "reference": "{{x}}"}), "graders.a.reference"),
        (multi("a", a={"type": "multi"}), "graders.a.type"),
        (multi("a", a=7), "graders.a"),
        (multi("a"), "graders"),
        (multi("min", min={"type": "math"}), "graders"),
        (multi("class", **{"class": {"type": "math"}}), "graders"),
        (multi("a", **{"a-b": {"type": "math"}}), "graders"),
        (multi("a + b", a={"type": "math"}), "calculate_output"),
        (multi("1 + 1", a={"type": "math"}), "calculate_output"),
        (multi("a.real", a={"type": "math"}), "calculate_output"),
        (multi("a / (1 - 1)", a={"type": "math"}), "calculate_output"),
        (multi("log(0 - a - 1)", a={"type": "math"}), "calculate_output"),
        (multi("1e9 * (a + 1)", a={"type": "math"}), "calculate_output"),
        (good("math", reference="a\x00b"), "reference"),
        (good("json_schema", json_schema={"const": "a\ud800"}), "json_schema.const"),
        (good("python", source="x" * 700_000), "source"),
    ],
)
def test_a_bad_field_is_named(raw, field):
    assert field in problems(raw)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("x = 1", "defines no function"),
        ("def grade(sample, item)\n    return 1", "line 1"),
        ("def other(sample, item):\n    pass\n\ndef grade(sample):\n    return 1", "line 4: grade must take two values"),
        ("def grade(sample, item, *, mood):\n    return 1", "two values"),
        ("async def grade(sample, item):\n    return 1", "async"),
        ("class A:\n    def grade(sample, item):\n        return 1", "defines no function"),
        ("(" * 1000, "line 1"),
        ("-" * 100_000, "cannot be read"),
        ("é" * 130_000 + GRADE, "larger than 256 kB"),
    ],
)
def test_a_source_that_could_not_grade_is_refused_with_its_line(source, why):
    assert why in problems(good("python", source=source))["source"]


@pytest.mark.parametrize(
    "head", ["def grade(sample, item):", "def grade(sample, item, weight=2):", "def grade(*args):", "def grade(a, b, /):"]
)
def test_a_source_that_takes_sample_and_item_is_accepted(head):
    assert parse_grader(good("python", source=f"{head}\n    return 1"))


def test_templates_inside_parts_and_messages_are_held_against_the_dataset():
    grader = parse_grader(multi("a", a=good("label_model", input=[*MESSAGES, {"role": "user", "content": "{{item.rubric}}"}])))

    assert template_problems(grader, ["answer"]) == [
        ("graders.a.input.1.content", "there is no column rubric in every row; there are answer")
    ]
    assert template_problems(grader, None) == []


def test_a_job_names_the_field_inside_its_grader():
    with pytest.raises(SpecError) as refused:
        parse_job({"grader": multi("b", a={"type": "math"})})
    assert "grader.calculate_output" in dict(refused.value.problems)


def test_the_secret_that_signs_requests_is_not_shown():
    stored = parse_grader(multi("a", a=good("http"))).model_dump(mode="json")

    assert "ssss" not in str(shown(stored)) + repr(parse_grader(good("http")))
    assert shown(stored)["graders"]["a"]["url"] == "https://grader.example.com/"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([*TYPES, "a", "#", "{{item.x}}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted({field for type in TYPES for field in GOOD[type]} | {"name", "range", "reference", "input", "operation", "seconds"})


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3))
def test_any_configuration_is_refused_with_a_field_or_is_a_grader(type, changes):
    try:
        grader = parse_grader(good(type, **changes))
    except SpecError as refused:
        assert all(field and message for field, message in refused.problems)
    else:
        assert isinstance(grader, Grader.__origin__)


@pytest.mark.parametrize(
    ("grader", "field"),
    [(good("score_model", model="mild"), "grader.model"), (multi("a", a=good("label_model", model="mild")), "grader.graders.a.model")],
)
def test_a_judge_that_the_engine_does_not_offer_is_refused_before_the_job(grader, field):
    blob = {"sha256": "0" * 64, "bytes": 0}
    dataset, lora = {"version": "1", "train": blob, "train_rows": 64}, {"target_modules": MODEL.target_modules, "rank": 1}
    spec = {"base_model": MODEL.name, "dataset": dataset, "lora": lora, "rollout": {"max_prompt_tokens": 8, "max_new_tokens": 8}}
    job = parse_job({**spec, "grader": grader})
    with pytest.raises(SpecError) as refused:
        check_against(job, MODEL.model_copy(update={"judges": ("strict",)}))

    assert "offers strict" in dict(refused.value.problems)[field]
    check_against(job, MODEL.model_copy(update={"judges": ("mild", "strict")}))


@pytest.mark.parametrize(
    ("grader", "field"),
    [(good("python"), "grader.type"), (multi("a", a=good("code_exec")), "grader.graders.a.type")],
)
def test_code_is_refused_before_the_job_where_no_sandbox_holds(grader, field):
    blob = {"sha256": "0" * 64, "bytes": 0}
    dataset, lora = {"version": "1", "train": blob, "train_rows": 64}, {"target_modules": MODEL.target_modules, "rank": 1}
    spec = {"base_model": MODEL.name, "dataset": dataset, "lora": lora, "rollout": {"max_prompt_tokens": 8, "max_new_tokens": 8}}
    job = parse_job({**spec, "grader": grader})
    with pytest.raises(SpecError) as refused:
        check_against(job, MODEL.model_copy(update={"reward_sandbox": "none"}))

    assert "cannot hold the sandbox" in dict(refused.value.problems)[field]
    for tier in ("", "plain", "bwrap"):
        check_against(job, MODEL.model_copy(update={"reward_sandbox": tier}))
