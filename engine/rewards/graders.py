"""The built-in graders as pure functions: (grader, completion text, row) → reward, or the reason why there is none.

``grade`` answers ``string_check`` and ``numeric`` at once. ``math`` needs a process that can be killed (``math.MathPool``); for it, use
``pool.GraderPool``, which grades any grader without blocking an event loop. A grading that fails is invalid, never 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from engine.rewards import templates
from engine.rewards.numbers import close, last_number
from engine.spec import Grader, MathGrader, NumericGrader, StringCheckGrader


@dataclass(frozen=True, kw_only=True, slots=True)
class GradeResult:
    """``reward`` in 0..1, or None with the reason in ``invalid``."""

    reward: float | None
    invalid: str | None = None


RIGHT = GradeResult(reward=1.0)
WRONG = GradeResult(reward=0.0)


def invalid(reason: str) -> GradeResult:
    return GradeResult(reward=None, invalid=reason)


def check_templates(grader: Grader, columns: Collection[str] | None = None) -> list[tuple[str, str]]:
    """(field, problem) for each fault in the grader's templates, for use at the door. ``columns``: the dataset's, when known."""
    fields = {"input": grader.input, "reference": grader.reference}
    return [(name, problem) for name, template in fields.items() for problem in templates.check(template, columns)]


def filled(grader: Grader, text: str, item: Mapping[str, Any]) -> tuple[str, str]:
    """The grader's (input, reference) for one completion; raises ``templates.TemplateError``."""
    return templates.render(grader.input, text=text, item=item), templates.render(grader.reference, text=text, item=item)


def grade(grader: StringCheckGrader | NumericGrader, text: str, item: Mapping[str, Any]) -> GradeResult:
    """Grade one completion in place. Never raises on any text or item."""
    try:
        answer, reference = filled(grader, text, item)
    except templates.TemplateError as error:
        return invalid(str(error))
    if isinstance(grader, NumericGrader):
        return _numeric(grader, answer, reference)
    if isinstance(grader, MathGrader):
        return invalid("math is graded in a process of its own, not in place")
    return _string_check(grader, answer, reference)


def _string_check(grader: StringCheckGrader, answer: str, reference: str) -> GradeResult:
    if grader.strip:
        answer, reference = answer.strip(), reference.strip()
    if grader.operation in ("like", "ilike"):
        if not reference:
            return invalid(f"{grader.name}: the reference is empty, and every text contains it")
        if grader.operation == "ilike":
            answer, reference = answer.casefold(), reference.casefold()
        return RIGHT if reference in answer else WRONG
    return RIGHT if (answer == reference) == (grader.operation == "eq") else WRONG


def _numeric(grader: NumericGrader, answer: str, reference: str) -> GradeResult:
    expected = last_number(reference)
    if expected is None:
        return invalid(f"{grader.name}: the reference {reference[:80]!r} holds no number")
    value = last_number(answer)
    if value is None:
        return WRONG
    near = close(value, expected, absolute=grader.absolute_tolerance, relative=grader.relative_tolerance)
    return RIGHT if near else WRONG
