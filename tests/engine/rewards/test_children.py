"""Comparisons in their processes. The children are plain Python; no test here imports sympy itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from engine.rewards.children import ChildPool, Turns
from engine.rewards.graders import GradingFailed

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDLESS = {"answer": "$9^{9^{9^{9}}}$", "reference": "$10^{10^{10^{10}}}$"}
SLOW_PATTERN = {"schema": '{"pattern": "^(a+)+$"}', "answer": f'"{"a" * 40}!"'}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def math() -> AsyncIterator[ChildPool]:
    pool = ChildPool("math", seconds=20.0)
    await pool.start()
    yield pool
    await pool.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def text() -> AsyncIterator[ChildPool]:
    pool = ChildPool("text", seconds=20.0)
    yield pool
    await pool.close()


@pytest.mark.parametrize(
    ("answer", "reference", "equal"),
    [
        (r"the answer is $\frac{1}{2}$", "0.5", True),
        (r"\boxed{72}", "#### 72", True),
        (r"\frac{3}{4}", r"\frac{6}{8}", True),
        ("$x+1$", "1+x", True),
        (r"I think \boxed{x^2+2x+1}", "$(x+1)^2$", True),
        ("So it is 71.", "72", False),
        ("", "3", False),
    ],
)
async def test_it_compares_mathematics_and_not_text(math, answer, reference, equal):
    assert await math.ask({"answer": answer, "reference": reference}) is equal


async def test_a_reference_that_is_no_mathematics_cannot_be_graded(math):
    with pytest.raises(GradingFailed, match="no mathematical expression") as failed:
        await math.ask({"answer": "3", "reference": "hello there"})

    assert (failed.value.kind, failed.value.retry) == ("reference", False)


async def test_a_schema_looks_at_a_document(text):
    schema = '{"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}'

    assert [await text.ask({"schema": schema, "answer": answer}) for answer in ('{"a": 1}', '{"a": "1"}', "[]")] == [True, False, False]


async def test_a_comparison_without_end_is_cut_off_and_the_next_one_is_graded():
    pool = ChildPool("text", seconds=0.5)
    with pytest.raises(GradingFailed, match=r"no verdict within 0\.5 s") as failed:
        await pool.ask(SLOW_PATTERN)

    assert (failed.value.kind, failed.value.retry) == ("timeout", False)
    assert await pool.ask({"metric": "bleu", "answer": "a", "reference": "a"}) == 1.0
    await pool.close()


async def test_a_killed_child_is_replaced(math):
    (child,) = math._all
    child._process.kill()
    await child._process.wait()

    with pytest.raises(GradingFailed, match="broke") as failed:
        await math.ask({"answer": "4", "reference": "4"})
    assert failed.value.retry
    assert await math.ask({"answer": "4", "reference": "4"}) is True


async def test_no_child_survives_the_pool():
    pool = ChildPool("text", size=2)
    await pool.start()
    processes = [child._process for child in pool._all]

    await pool.close()

    assert [process.returncode for process in processes] == [-9, -9]


async def test_those_who_wait_are_served_in_turn_and_not_by_their_number():
    turns, served = Turns(), []

    async def want(owner: str) -> None:
        place = await turns.take(owner)
        served.append(owner)
        await asyncio.sleep(0)
        turns.give(place)

    waiting = [asyncio.create_task(want(owner)) for owner in ["greedy"] * 5 + ["small", "other"]]
    await asyncio.sleep(0)
    turns.give(None)
    await asyncio.gather(*waiting)

    assert served[:4] == ["greedy", "small", "other", "greedy"]


async def test_a_place_that_was_given_to_somebody_who_left_is_not_lost():
    turns = Turns()
    leaving = asyncio.create_task(turns.take("a"))
    await asyncio.sleep(0)
    turns.give(None)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)

    assert await asyncio.wait_for(turns.take("b"), 5) is None
