from __future__ import annotations

import pytest

from engine.rewards.templates import TemplateError, check, render


def test_it_fills_in_columns_and_the_completion():
    assert render("{{ item.answer }}|{{sample.output_text}}", text="42", item={"answer": "41"}) == "41|42"


def test_values_that_are_no_strings_read_as_in_the_dataset():
    assert render("{{item.a}} {{item.b}} {{item.c}}", text="", item={"a": True, "b": 0.5, "c": None}) == "true 0.5 null"


def test_a_filled_in_value_is_not_a_template_again():
    assert render("{{sample.output_text}}", text="{{item.answer}}", item={"answer": "42"}) == "{{item.answer}}"


def test_a_missing_column_names_the_template():
    with pytest.raises(TemplateError, match=r"\{\{item.answr\}\}.*needs the column 'answr'"):
        render("{{item.answr}}", text="", item={"answer": "42"})


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{item.answr}}", "the dataset has answer, prompt"),
        ("{{sample.text}}", "only {{item.<column>}}"),
        ("{{item.answer}", "unbalanced"),
        ("{{}}", "only {{item.<column>}}"),
    ],
)
def test_the_door_finds_what_could_not_be_filled(template, problem):
    (found,) = check(template, {"prompt", "answer"})

    assert problem in found


def test_a_good_template_has_no_problems():
    assert check("{{item.answer}} and {{sample.output_text}}", {"answer"}) == []
