from __future__ import annotations

import json

import pytest

from engine.grader_spec import parse_grader
from engine.rewards.graders import GradeResult, GradingFailed
from engine.rewards.pool import GraderPool
from engine.rewards.sandbox import AssertTest, CallTest, Failed, Graded, NotApplicable, StdinTest, TestOutcome
from engine.rewards.sandboxed import code_in, parse_tests
from tests.engine.rewards.fakes import FakeSandbox

SOURCE = "def grade(sample, item):\n    return 1"


async def reward(sandbox: FakeSandbox | None, *, owner: str = "job-1", **changes) -> GradeResult:
    grader = parse_grader({"type": "python", "source": SOURCE, **changes})
    return await GraderPool(sandbox=sandbox).grade(grader, "[1]", {"answer": "42"}, owner=owner, row=3, tool_calls=[{"name": "f"}])


async def test_the_tenants_code_sees_plain_values_of_sample_and_item():
    sandbox = FakeSandbox(verdicts=[Graded(reward=0.25, components={"style": 9.0})])
    result = await reward(sandbox)

    assert result == GradeResult(reward=0.25, components={"style": 9.0, "python": 0.25})
    assert sandbox.items == [
        {"sample": {"output_text": "[1]", "output_json": [1], "tool_calls": [{"name": "f"}]}, "item": {"answer": "42"}}
    ]


async def test_two_jobs_with_one_source_have_two_keys():
    sandbox = FakeSandbox(verdicts=[NotApplicable()])
    await reward(sandbox, owner="job-1")
    await reward(sandbox, owner="job-2")

    assert len(set(sandbox.keys)) == 2


async def test_none_does_not_apply_and_is_not_invalid():
    assert await reward(FakeSandbox(verdicts=[NotApplicable()])) == GradeResult(reward=None, components={"python": None})


async def test_a_reward_outside_of_its_range_names_row_and_grader():
    result = await reward(FakeSandbox(verdicts=[Graded(reward=-1.0)]), name="mine")

    assert (result.kind, result.invalid) == ("bad_value", "row 3: mine: the reward -1 lies outside of 0 to 1")
    assert (await reward(FakeSandbox(verdicts=[Graded(reward=-1.0)]), range=[-1, 1])).reward == -1.0


async def test_a_failure_is_tried_once_more_and_tells_its_line():
    failed = Failed(kind="exception", message="KeyError: 'x'", line=2)

    assert (await reward(FakeSandbox(verdicts=[failed, Graded(reward=1.0)]))).reward == 1.0
    result = await reward(FakeSandbox(verdicts=[failed]))
    assert (result.reward, result.kind, result.invalid) == (None, "exception", "row 3: python: KeyError: 'x' (line 2)")


@pytest.mark.parametrize("kind", ["import_error", "too_large", "timeout", "hard_timeout"])
async def test_what_would_end_the_same_way_is_not_tried_again(kind):
    sandbox = FakeSandbox(verdicts=[Failed(kind=kind, message="no")])
    await reward(sandbox)

    assert len(sandbox.items) == 1


async def test_without_a_sandbox_code_is_invalid_and_never_run():
    assert (await reward(None)).kind == "unavailable"


async def check(sandbox: FakeSandbox, tests, text: str = "x = 1", **changes) -> GradeResult:
    grader = parse_grader({"type": "code_exec", **changes})
    return await GraderPool(sandbox=sandbox).grade(grader, text, {"tests": tests})


def outcomes(*passed: bool) -> FakeSandbox:
    left = list(passed)
    return FakeSandbox(passes=lambda code, test: TestOutcome(passed=left.pop(0)))


async def test_code_must_pass_all_its_tests_unless_a_part_counts():
    assert (await check(outcomes(True, True), ["assert 1", "assert 2"])).reward == 1.0
    assert (await check(outcomes(True, False), ["assert 1", "assert 2"])).reward == 0.0
    assert (await check(outcomes(True, False), ["assert 1", "assert 2"], partial=True)).reward == 0.5


@pytest.mark.parametrize("kind", ["timeout", "hard_timeout", "crash", "memory", "exception", "exit"])
async def test_code_that_breaks_is_wrong_and_not_invalid(kind):
    broken = FakeSandbox(passes=lambda code, test: TestOutcome(passed=False, error=Failed(kind=kind, message="")))

    assert (await check(broken, "assert f(1) == 2")).reward == 0.0


async def test_a_sandbox_that_is_away_makes_it_invalid():
    away = FakeSandbox(passes=lambda code, test: TestOutcome(passed=False, error=Failed(kind="unavailable", message="no runner")))
    result = await check(away, "assert f(1) == 2")

    assert (result.reward, result.kind, len(away.code)) == (None, "unavailable", 2)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1", "x = 1"),
        ("First\n```python\nx = 1\n```\nbut better\n```py\nx = 2\n```\nDone.", "x = 2\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("inline ``` is no block", "inline ``` is no block"),
    ],
)
def test_the_last_fenced_block_is_the_code(text, code):
    assert code_in(text) == code


@pytest.mark.parametrize(
    ("tests", "found"),
    [
        ("assert f(1) == 2", [AssertTest(source="assert f(1) == 2")]),
        ('["assert f(1) == 2"]', [AssertTest(source="assert f(1) == 2")]),
        ('{"stdin": "1", "stdout": "2"}', [StdinTest(stdin="1", stdout="2")]),
        ('{"inputs": ["1"], "outputs": ["2"]}', [StdinTest(stdin="1", stdout="2")]),
        ('[{"function": "f", "args": [1], "expected": null}]', [CallTest(function="f", args=(1,), expected=None)]),
    ],
)
def test_tests_are_read_in_the_shapes_that_datasets_have(tests, found):
    assert parse_tests(tests) == found


@pytest.mark.parametrize(
    "tests",
    [
        "",
        " ",
        "[]",
        "null",
        "[1]",
        '[""]',
        '{"inputs": ["1"], "outputs": []}',
        '{"function": "f()", "expected": 1}',
        json.dumps(["assert 1"] * 201),
    ],
)
def test_tests_that_cannot_be_read_cannot_be_graded(tests):
    with pytest.raises(GradingFailed, match="the tests") as failed:
        parse_tests(tests)
    assert failed.value.kind == "reference"
