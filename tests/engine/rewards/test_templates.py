from __future__ import annotations

from typing import Any

import pytest

from engine.rewards import templates
from engine.rewards.sample import NotJson, Sample
from engine.rewards.templates import TemplateError, problems

CALLS = ({"name": "search", "arguments": {"query": "Ohm"}},)


def render(template: str, text: str = "", **item: Any) -> str:
    return templates.render(template, sample=Sample(output_text=text, tool_calls=CALLS), item=item)


def test_it_fills_in_columns_and_the_completion():
    assert render("{{ item.answer }}|{{sample.output_text}}", "42", answer="41") == "41|42"


def test_values_that_are_no_strings_read_as_in_the_dataset():
    assert render("{{item.a}} {{item.b}} {{item.c}}", a=True, b=0.5, c=None) == "true 0.5 null"


def test_a_filled_in_value_is_not_a_template_again():
    assert render("{{sample.output_text}}", "{{item.answer}}", answer="42") == "{{item.answer}}"


def test_a_missing_column_names_the_template():
    with pytest.raises(TemplateError, match=r"\{\{item.answr\}\}.*no column answr"):
        render("{{item.answr}}", answer="42")


@pytest.mark.parametrize("text", ['{"a": [{"b": 7}]}', '```json\n{"a": [{"b": 7}]}\n```', ' \n{"a": [{"b": 7}]} '])
def test_a_path_leads_into_the_json_that_the_model_wrote(text):
    assert render("{{sample.output_json.a.0.b}} {{sample.output_json.a}}", text) == '7 [{"b": 7}]'


@pytest.mark.parametrize(
    "text", ["so 7", "[NaN]", "[" * 100_000, "[" * 500 + "]" * 500, "{}", '{"a": []}', '{"a": {"1": 2}}', 'see {"a": [1]}', "9" * 5000]
)
def test_a_completion_without_that_json_is_the_models_fault(text):
    with pytest.raises(NotJson):
        render("{{sample.output_json.a.0}}", text)


def test_tool_calls_read_as_json():
    assert render("{{sample.tool_calls}}") == '[{"name": "search", "arguments": {"query": "Ohm"}}]'


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{item.answr}}", "there are answer, prompt"),
        ("{{sample.text}}", "{{sample.text}} means nothing"),
        ("{{sample.output_json.}}", "means nothing"),
        ("{{answer}}", "there are {{item.<column>}}"),
        ("{{item.answer}", "unbalanced"),
        ("{{}}", "there are {{item.<column>}}"),
    ],
)
def test_the_door_finds_what_could_not_be_filled(template, problem):
    (found,) = problems(template, {"prompt", "answer"})

    assert problem in found


def test_a_good_template_has_no_problems():
    assert problems("{{item.answer}} and {{sample.output_text}} {{sample.output_json.a.0}}", {"answer"}) == []


def test_what_the_model_wrote_is_framed_and_the_dataset_is_not():
    sample = Sample(output_text="hi")

    assert templates.render("{{item.a}} {{sample.output_text}}", sample=sample, item={"a": "1"}, frame=lambda text: f"<{text}>") == "1 <hi>"
