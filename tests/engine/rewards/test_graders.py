from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.grader_spec import NumericGrader, StringCheckGrader, template_problems
from engine.rewards.graders import grade

ITEM = {"answer": "42"}


def string_check(operation: str = "eq", **changes) -> StringCheckGrader:
    return StringCheckGrader(type="string_check", operation=operation, **changes)


@pytest.mark.parametrize(
    ("operation", "text", "reward"),
    [
        ("eq", " 42\n", 1.0),
        ("eq", "421", 0.0),
        ("ne", "42", 0.0),
        ("ne", "41", 1.0),
        ("like", "it is 42!", 1.0),
        ("like", "it is 41", 0.0),
    ],
)
def test_strings_are_compared_as_the_operation_says(operation, text, reward):
    assert grade(string_check(operation), text, ITEM).reward == reward


def test_ilike_ignores_case_and_like_does_not():
    item = {"answer": "Paris"}

    assert [grade(string_check(operation), "PARIS", item).reward for operation in ("like", "ilike")] == [0.0, 1.0]


def test_without_strip_white_space_counts():
    assert grade(string_check(strip=False), "42 ", ITEM).reward == 0.0


def test_an_empty_reference_that_any_text_contains_is_invalid():
    result = grade(string_check("like"), "anything", {"answer": " "})

    assert (result.reward, "empty" in result.invalid) == (None, True)


@pytest.mark.parametrize(("text", "reward"), [("so it is 42.0", 1.0), ("42 or 43", 0.0), ("no idea", 0.0), ("84/2", 1.0)])
def test_numbers_are_compared_by_value(text, reward):
    assert grade(NumericGrader(type="numeric"), text, ITEM).reward == reward


@pytest.mark.parametrize(("text", "reward"), [("43", 1.0), ("44.3", 0.0)])
def test_the_wider_tolerance_counts(text, reward):
    assert grade(NumericGrader(type="numeric", absolute_tolerance=0.1, relative_tolerance=0.05), text, ITEM).reward == reward


def test_a_reference_without_a_number_is_invalid_and_not_zero():
    result = grade(NumericGrader(type="numeric"), "42", {"answer": "many"})

    assert (result.reward, result.invalid) == (None, "numeric: the reference 'many' holds no number")


def test_a_missing_column_is_invalid_and_names_the_template():
    result = grade(string_check(reference="{{item.solution}}"), "42", ITEM)

    assert result.reward is None
    assert "{{item.solution}}" in result.invalid


def test_the_door_names_the_field_of_a_bad_template():
    assert [field for field, _ in template_problems(string_check(reference="{{item.x}}"), {"answer"})] == ["reference"]


@pytest.mark.parametrize("operation", ["eq", "ne"])
def test_an_answer_without_the_json_that_is_asked_for_is_wrong(operation):
    grader = string_check(operation, input="{{sample.output_json.answer}}")

    assert grade(grader, "no JSON", ITEM).reward == 0.0
    assert grade(grader, '{"answer": 42}', ITEM).reward == (1.0 if operation == "eq" else 0.0)


@given(st.text(), st.sampled_from(["eq", "ne", "like", "ilike"]))
def test_grading_never_raises_on_any_text(text, operation):
    assert grade(string_check(operation), text, ITEM).reward in (0.0, 1.0)
    assert grade(NumericGrader(type="numeric"), text, ITEM).reward in (0.0, 1.0)
