from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from engine.grader_spec import TYPES, parse_grader
from engine.rewards.pool import GraderPool
from engine.rewards.sandbox import Graded, NotApplicable
from tests.engine.rewards.fakes import FakeJudge, FakeSandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

ITEM = {"answer": "42", "tests": "assert f(1) == 2"}
RIGHT = {"type": "numeric"}
EXACT = {"type": "string_check"}
SHARE = {"type": "python", "source": "def grade(sample, item):\n    return 0"}
ALIKE = {"type": "text_similarity", "evaluation_metric": "rouge_1"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[GraderPool]:
    pool = GraderPool(math_seconds=20.0, text_seconds=20.0)
    yield pool
    await pool.close()


def multi(formula: str, **graders: Any) -> Any:
    return parse_grader({"type": "multi", "graders": graders, "calculate_output": formula})


async def test_a_formula_combines_named_graders_and_keeps_their_rewards(pool):
    result = await pool.grade(multi("0.75 * right + 0.25 * exact", right=RIGHT, exact=EXACT), "so 42", ITEM)

    assert result.reward == 0.75
    assert result.components == {"right": 1.0, "exact": 0.0, "multi": 0.75}


async def test_parts_of_parts_are_kept_under_their_names():
    sandbox = FakeSandbox(verdicts=[Graded(reward=0.5, components={"style": 2.0})])
    result = await GraderPool(sandbox=sandbox).grade(multi("share", share=SHARE), "42", ITEM)

    assert result.components == {"share": 0.5, "share.style": 2.0, "multi": 0.5}


async def test_does_a_part_not_apply_neither_does_the_whole():
    pool = GraderPool(sandbox=FakeSandbox(verdicts=[NotApplicable()]))
    result = await pool.grade(multi("right + share", right=RIGHT, share=SHARE), "42", ITEM)

    assert (result.reward, result.invalid, result.components["right"]) == (None, None, 1.0)


async def test_a_failed_part_makes_the_whole_invalid_and_is_named(pool):
    result = await pool.grade(multi("right + exact", right=RIGHT, exact=EXACT), "42", {"answer": "many"}, row=9)

    assert (result.reward, result.kind) == (None, "reference")
    assert result.invalid == "row 9: multi: right: numeric: the reference 'many' holds no number"


async def test_a_part_that_the_formula_leaves_out_is_recorded_and_spoils_nothing(pool):
    result = await pool.grade(multi("exact", right=RIGHT, exact=EXACT), "many", {"answer": "many"})

    assert (result.reward, result.components) == (1.0, {"right": None, "exact": 1.0, "multi": 1.0})


async def test_a_formula_without_a_value_is_invalid(pool):
    result = await pool.grade(multi("1 / right", right=RIGHT), "41", ITEM)

    assert (result.kind, "division by zero" in result.invalid) == ("formula", True)


async def test_what_judges_read_is_added_up():
    judge = FakeJudge(says=['{"result": 1}'])
    part = {"type": "score_model", "model": "j", "input": [{"role": "user", "content": "{{sample.output_text}}"}]}
    result = await GraderPool(judges={"j": judge}).grade(multi("a * b", a=part, b=part), "42", ITEM)

    assert (result.reward, result.judge_tokens) == (1.0, 20)


async def test_texts_are_compared_by_the_metric(pool):
    result = await pool.grade(parse_grader(ALIKE | {"reference": "{{item.a}}"}), "the cat", {"a": "the dog"})

    assert result.reward == 0.5


@pytest.mark.parametrize(
    ("text", "reward"), [('{"a": 1}', 1.0), ('```json\n{"a": 1}\n```', 1.0), ('{"a": "1"}', 0.0), ("a = 1", 0.0), ("", 0.0)]
)
async def test_json_is_held_against_a_schema(pool, text, reward):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    assert (await pool.grade(parse_grader({"type": "json_schema", "json_schema": schema}), text, ITEM)).reward == reward


@pytest.mark.parametrize("levels", [1, 50, 99])
async def test_a_schema_that_refers_to_itself_reaches_to_the_bottom(pool, levels):
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False}
    deep, broken = '{"a": ' * levels + "{}" + "}" * levels, '{"a": ' * levels + "1" + "}" * levels
    grader = parse_grader({"type": "json_schema", "json_schema": schema})

    assert [(await pool.grade(grader, text, ITEM)).reward for text in (deep, broken)] == [1.0, 0.0]


@pytest.mark.parametrize("levels", [101, 900, 990, 100_000])
async def test_a_document_that_is_too_deep_is_no_answer(pool, levels):
    grader = parse_grader({"type": "json_schema", "json_schema": {}})

    assert (await pool.grade(grader, "[" * levels + "]" * levels, ITEM)).reward == 0.0


async def test_math_is_compared_and_a_missing_column_is_invalid(pool):
    assert (await pool.grade(parse_grader({"type": "math"}), r"\boxed{84/2}", ITEM)).reward == 1.0
    assert "{{item.gone}}" in (await pool.grade(parse_grader({"type": "math", "reference": "{{item.gone}}"}), "4", ITEM)).invalid


async def test_a_slow_schema_is_invalid_after_one_try():
    pool = GraderPool(text_seconds=0.3)
    result = await pool.grade(parse_grader({"type": "json_schema", "json_schema": {"pattern": "^(a+)+$"}}), f'"{"a" * 40}!"', ITEM)

    assert (result.reward, result.kind) == (None, "timeout")
    await pool.close()


async def test_every_type_of_the_schema_can_be_graded():
    assert {model.model_fields["type"].annotation.__args__[0] for model in GraderPool()._ways} == set(TYPES)
