"""Python rewards and models' code through the real sandbox: that what it answers means what graders think it means."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from engine.grader_spec import parse_grader
from engine.rewards.graders import GradeResult
from engine.rewards.pool import GraderPool
from engine.rewards.sandbox import Sandbox, SandboxSettings

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

DOUBLE = "So:\n```python\ndef f(x):\n    return 2 * x\n\nif __name__ == '__main__':\n    print(f(int(input())))\n```\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[GraderPool]:
    # How strong the walls are is tested elsewhere; these tests must run wherever Python does.
    pool = GraderPool(sandbox=Sandbox(SandboxSettings(tier="weak", spares=1)))
    yield pool
    await pool.close()


async def grade(pool: GraderPool, raw: dict[str, Any], text: str = "42", **item: Any) -> GradeResult:
    return await pool.grade(parse_grader(raw), text, {"answer": "42", **item}, owner="tenant/job", row=3)


def python(body: str) -> dict[str, Any]:
    return {"type": "python", "source": f"def grade(sample, item):\n    {body}\n"}


@pytest.mark.parametrize(
    ("body", "reward", "kind"),
    [
        ("return sample['output_text'] == item['answer']", 1.0, None),
        ("return {'reward': 0.5, 'length': len(sample['output_text'])}", 0.5, None),
        ("return None", None, None),
        ("return 7", None, "bad_value"),
        ("return float('nan')", None, "bad_value"),
        ("return 'right'", None, "bad_value"),
        ("raise ValueError('no')", None, "exception"),
        ("import os; os._exit(3)", None, "crash"),
    ],
)
async def test_a_verdict_becomes_a_reward_or_does_not_apply_or_is_invalid(pool, body, reward, kind):
    result = await grade(pool, python(body))

    assert (result.reward, result.kind) == (reward, kind)
    assert (result.invalid is None) == (kind is None)


async def test_the_reason_names_row_grader_and_line(pool):
    assert (await grade(pool, python("raise KeyError('x')"))).invalid == "row 3: python: KeyError: 'x' (line 2)"


@pytest.mark.parametrize(
    ("tests", "reward"),
    [
        ("assert f(2) == 4", 1.0),
        (["assert f(2) == 4", "assert f(3) == 5"], 0.0),
        ({"inputs": ["3\n"], "outputs": ["6"]}, 1.0),
        ([{"function": "f", "args": [5], "expected": 10}], 1.0),
    ],
)
async def test_code_is_run_against_tests_of_every_shape(pool, tests, reward):
    assert (await grade(pool, {"type": "code_exec"}, DOUBLE, tests=tests)).reward == reward


@pytest.mark.parametrize("text", ["", "no code at all", "while True: pass", "import os; os._exit(0)", "def f(x): return 3"])
async def test_code_that_does_not_pass_is_wrong_and_never_invalid(pool, text):
    assert await grade(pool, {"type": "code_exec", "seconds": 0.5}, text, tests="assert f(2) == 4") == GradeResult(
        reward=0.0, components={"code_exec": 0.0}
    )
