from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from engine.grader_spec import parse_grader
from engine.rewards.corpus import Case, Report, all_cases, run
from engine.rewards.graders import GradeResult
from engine.rewards.pool import GraderPool
from tests.engine.rewards.model_like import model_like

together = pytest.mark.asyncio(loop_scope="module")

NUMBERS, FORMULAS = ("number",), ("number", "expression")
REFERENCES = ("42", "1/2", r"2\sqrt{3}", "(3, 4)", "1,234", "50%")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[GraderPool]:
    pool = GraderPool(math_seconds=20.0, text_seconds=20.0)
    yield pool
    await pool.close()


async def report(pool: GraderPool, raw: dict[str, Any], cases: list[Case]) -> Report:
    grader = parse_grader(raw)

    async def grade(text: str, item: Mapping[str, Any]) -> GradeResult:
        return await pool.grade(grader, text, item)

    return await run(grade, cases)


def told(report: Report) -> list[tuple[str, str, str]]:
    return [(o.case.kind, o.case.answer, o.case.text[:60]) for o in (*report.false_accepts, *report.false_rejects)]


def test_the_corpus_covers_every_kind_with_at_least_eighty_cases():
    kinds = Counter((case.group, case.kind) for case in all_cases())

    assert sum(kinds.values()) >= 80
    assert {
        *(("exploit", kind) for kind in ("empty", "echo", "shotgun", "negation", "contradiction", "padding", "format only")),
        *(("exploit", kind) for kind in ("judge injection", "judge flattery")),
        *(("equivalence", kind) for kind in ("fractions", "units", "thousands separators", "LaTeX", "spelled numbers")),
    } <= kinds.keys()
    assert len([case for case in all_cases() if case.group == "distinction"]) >= 30


def test_no_case_stands_there_twice():
    assert not [case for case, times in Counter((c.answer, c.question, c.text) for c in all_cases()).items() if times > 1]


@together
async def test_numeric_accepts_every_right_number_and_no_wrong_one(pool):
    found = await report(pool, {"type": "numeric"}, all_cases(NUMBERS))

    assert told(found) == []
    assert not [o for o in found.outcomes if o.result.reward is None]


@together
async def test_math_accepts_every_right_answer_and_no_wrong_one(pool):
    found = await report(pool, {"type": "math"}, all_cases(FORMULAS))

    assert told(found) == []
    assert not [o for o in found.outcomes if o.result.reward is None]


@together
async def test_a_careless_reward_is_told_where_it_is_careless(pool):
    found = await report(pool, {"type": "string_check", "operation": "like"}, all_cases())
    counts = {(count.group, count.kind): count for count in found.by_kind()}

    assert counts["exploit", "shotgun"].false_accepts > 5
    assert counts["equivalence", "spelled numbers"].false_rejects > 5
    assert counts["exploit", "empty"].false_accepts == 0


@together
async def test_what_cannot_be_graded_is_neither_accepted_nor_rejected():
    async def grade(text: str, item: Mapping[str, Any]) -> GradeResult:
        return GradeResult(reward=None, invalid="broken")

    found = await run(grade, all_cases())

    assert told(found) == []
    assert sum(count.ungraded for count in found.by_kind()) == len(all_cases())


def test_a_rewards_own_columns_hold_the_question_and_the_answer():
    item = all_cases()[0].item(["solution", "problem"])

    assert (item["solution"], item["problem"]) == (item["answer"], item["prompt"])


async def graded(pool: GraderPool, type: str, seeds: range) -> Counter[float | None]:
    grader = parse_grader({"type": type})
    results = [await pool.grade(grader, model_like(seed), {"answer": REFERENCES[seed % len(REFERENCES)]}) for seed in seeds]
    return Counter(result.reward for result in results)


@together
@pytest.mark.parametrize(("type", "count"), [("numeric", 1000), ("math", 60), ("string_check", 1000), ("text_similarity", 300)])
async def test_nothing_that_a_model_writes_breaks_a_grader(pool, type, count):
    found = await graded(pool, type, range(count))

    assert (found.total(), found[None]) == (count, 0)


@together
@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("type", ["numeric", "math", "string_check", "text_similarity"])
async def test_ten_thousand_things_that_models_write_break_no_grader(pool, type):
    found = await graded(pool, type, range(10_000))

    assert (found.total(), found[None]) == (10_000, 0)
