"""What a grading results in, and the two graders that are cheap enough for the event loop: ``string_check`` and ``numeric``.

All others are in ``pool.GraderPool``, which grades anything without blocking. A grading that fails is invalid, never 0; a reward that
is None without being invalid means that the grader does not apply to this row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.grader_spec import NumericGrader, StringCheckGrader
from engine.rewards import templates
from engine.rewards.numbers import judge_number, last_number
from engine.rewards.sample import NotJson, Sample

# What a failed grading can be: the kinds that the sandbox adds are in its own module.
TEMPLATE, REFERENCE, TIMEOUT, CRASH, BAD_VALUE, FORMULA, HTTP, JUDGE, UNAVAILABLE = (
    *("template", "reference", "timeout", "crash", "bad_value", "formula", "http", "judge", "unavailable"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GradeResult:
    """``reward``, or None: does not apply, or, when there is an ``invalid`` reason of some ``kind``, could not be graded.

    ``line``: where in the tenant's own source it failed, from 1. ``components``: what the reward is made of, by name; empty stands for the
    reward itself. ``judge_tokens``: read and written by judges.
    """

    reward: float | None
    invalid: str | None = None
    kind: str | None = None
    line: int | None = None
    components: Mapping[str, float | None] = field(default_factory=dict)
    judge_tokens: int = 0


RIGHT = GradeResult(reward=1.0)
WRONG = GradeResult(reward=0.0)
DOES_NOT_APPLY = GradeResult(reward=None)


class GradingFailed(Exception):
    """A grading that came to nothing. ``retry``: it may come to something when tried again. ``line``: of the tenant's own source."""

    def __init__(self, kind: str, reason: str, *, retry: bool = False, judge_tokens: int = 0, line: int | None = None):
        super().__init__(reason)
        self.kind, self.reason, self.retry, self.judge_tokens, self.line = kind, reason, retry, judge_tokens, line


def invalid(reason: str, *, kind: str = CRASH, judge_tokens: int = 0, line: int | None = None) -> GradeResult:
    return GradeResult(reward=None, invalid=reason, kind=kind, judge_tokens=judge_tokens, line=line)


def filled(template: str, sample: Sample, item: Mapping[str, Any]) -> str:
    """Raises ``GradingFailed`` for what the row lacks, and ``NotJson`` for what the completion lacks."""
    try:
        return templates.render(template, sample=sample, item=item)
    except templates.TemplateError as error:
        raise GradingFailed(TEMPLATE, str(error)) from None


def grade(grader: StringCheckGrader | NumericGrader, text: str, item: Mapping[str, Any]) -> GradeResult:
    """Grade one completion in place. Never raises on any text or item."""
    try:
        return grade_in_place(grader, Sample(output_text=text), item)
    except GradingFailed as failure:
        return invalid(f"{grader.name}: {failure.reason}", kind=failure.kind)
    except NotJson:
        return WRONG


def grade_in_place(grader: StringCheckGrader | NumericGrader, sample: Sample, item: Mapping[str, Any]) -> GradeResult:
    """Raises ``GradingFailed`` and ``NotJson``."""
    # The reference first: a row that cannot be graded is invalid whatever the model wrote.
    reference = filled(grader.reference, sample, item)
    answer = filled(grader.input, sample, item)
    return _numeric(grader, answer, reference) if isinstance(grader, NumericGrader) else _string_check(grader, answer, reference)


def checked_reward(value: Any, bounds: tuple[float, float]) -> float:
    """``value`` as a reward within ``bounds``. Raises ``GradingFailed`` for other types, NaN, infinities and what lies outside."""
    if not isinstance(value, bool | int | float):
        raise GradingFailed(BAD_VALUE, f"the reward is a {type(value).__name__}, not a number")
    try:
        reward = float(value)
    except OverflowError:
        reward = math.inf
    if not math.isfinite(reward):
        raise GradingFailed(BAD_VALUE, f"the reward is not finite: {reward}")
    low, high = bounds
    if not low <= reward <= high:
        raise GradingFailed(BAD_VALUE, f"the reward {reward:g} lies outside of {low:g} to {high:g}")
    return reward


MAX_COMPONENTS = 32
MAX_COMPONENT = 1e9


def checked_components(raw: Any) -> dict[str, float]:
    """Named parts of a reward, for the record only: of any finite size. Raises ``GradingFailed``."""
    if not isinstance(raw, Mapping) or len(raw) > MAX_COMPONENTS:
        raise GradingFailed(BAD_VALUE, f"the components are not an object of at most {MAX_COMPONENTS} numbers")
    return {str(name)[:64]: checked_reward(value, (-MAX_COMPONENT, MAX_COMPONENT)) for name, value in raw.items()}


def _string_check(grader: StringCheckGrader, answer: str, reference: str) -> GradeResult:
    if grader.strip:
        answer, reference = answer.strip(), reference.strip()
    if grader.operation in ("like", "ilike"):
        if not reference:
            raise GradingFailed(REFERENCE, "the reference is empty, and every text contains it")
        if grader.operation == "ilike":
            answer, reference = answer.casefold(), reference.casefold()
        return RIGHT if reference in answer else WRONG
    return RIGHT if (answer == reference) == (grader.operation == "eq") else WRONG


def _numeric(grader: NumericGrader, answer: str, reference: str) -> GradeResult:
    if last_number(reference) is None:
        raise GradingFailed(REFERENCE, f"the reference {reference[:80]!r} holds no number")
    near = judge_number(answer, reference, absolute=grader.absolute_tolerance, relative=grader.relative_tolerance)
    return RIGHT if near else WRONG
