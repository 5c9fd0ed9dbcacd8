"""math-verify in its process. The children are plain Python; no test here imports sympy itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from engine.rewards.math import MathPool
from engine.rewards.pool import GraderPool
from engine.spec import MathGrader

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDLESS = ("$9^{9^{9^{9}}}$", "$10^{10^{10^{10}}}$")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[MathPool]:
    pool = MathPool(size=1, seconds=20.0)
    await pool.start()
    yield pool
    await pool.close()


@pytest.mark.parametrize(
    ("answer", "reference", "reward"),
    [
        (r"the answer is $\frac{1}{2}$", "0.5", 1.0),
        (r"\boxed{72}", "#### 72", 1.0),
        (r"\frac{3}{4}", r"\frac{6}{8}", 1.0),
        ("$x+1$", "1+x", 1.0),
        (r"I think \boxed{x^2+2x+1}", "$(x+1)^2$", 1.0),
        ("So it is 71.", "72", 0.0),
        ("", "3", 0.0),
    ],
)
async def test_it_compares_mathematics_and_not_text(pool, answer, reference, reward):
    assert (await pool.compare(answer, reference)).reward == reward


async def test_a_reference_that_is_no_mathematics_is_invalid(pool):
    assert "no mathematical expression" in (await pool.compare("3", "hello there")).invalid


async def test_a_comparison_without_end_is_invalid_and_the_next_one_is_graded():
    pool = MathPool(size=1, seconds=0.2)
    await pool.start()

    assert (await pool.compare(*ENDLESS)).invalid == "math: no verdict within 0.2 s"

    patient = MathPool(size=1, seconds=20.0)
    assert (await patient.compare("4", "4")).reward == 1.0
    await pool.close()
    await patient.close()


async def test_a_killed_child_is_replaced_and_the_grade_retried(pool):
    (child,) = pool._all
    child._process.kill()
    await child._process.wait()

    assert (await pool.compare("4", "4")).reward == 1.0


async def test_no_child_survives_the_pool():
    pool = MathPool(size=2)
    await pool.start()
    processes = [child._process for child in pool._all]

    await pool.close()

    assert [process.returncode for process in processes] == [-9, -9]


async def test_a_math_grader_with_a_missing_column_is_invalid_without_any_process():
    graders = GraderPool()

    result = await graders.grade(MathGrader(type="math", reference="{{item.gone}}"), "4", {"answer": "4"})

    assert "{{item.gone}}" in result.invalid
    await graders.close()
