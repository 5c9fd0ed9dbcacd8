"""The Reward Lab's adversarial corpus: answers that a reward must accept, and answers that it must not.

A case is a pure value: a question, its right answer, and one text that a model might write. ``run`` holds a grader against cases and
reports what it wrongly accepts (the model will learn to write that) and wrongly rejects (right answers that go unpaid), kind by kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.rewards.graders import GradeResult

Group = Literal["exploit", "equivalence", "distinction"]
Topic = Literal["number", "expression", "choice", "text"]

# Columns that datasets keep the question in; every other column that a reward asks for is its answer.
QUESTION_COLUMNS = ("prompt", "question", "problem", "query", "instruction", "input", "context")


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """``right``: whether ``text`` deserves the reward. ``topic``: what kind of answer is asked for."""

    group: Group
    kind: str
    topic: Topic
    question: str
    answer: str
    text: str
    right: bool

    def item(self, columns: Collection[str] = ()) -> dict[str, str]:
        """A dataset row of this case; each of ``columns`` that is no question holds the answer."""
        row = {"prompt": self.question, "question": self.question, "answer": self.answer}
        return row | {column: self.question if column in QUESTION_COLUMNS else self.answer for column in columns}


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    case: Case
    result: GradeResult
    accepted: bool

    @property
    def false_accept(self) -> bool:
        return self.accepted and not self.case.right

    @property
    def false_reject(self) -> bool:
        return self.case.right and self.result.reward is not None and not self.accepted


@dataclass(frozen=True, kw_only=True, slots=True)
class KindCount:
    """What became of one kind of case. ``ungraded``: invalid, or the reward did not apply."""

    group: Group
    kind: str
    cases: int
    false_accepts: int
    false_rejects: int
    ungraded: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    outcomes: tuple[Outcome, ...]

    @property
    def false_accepts(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.false_accept]

    @property
    def false_rejects(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.false_reject]

    def by_kind(self) -> list[KindCount]:
        """One count per kind, in the corpus's order."""
        counts = {
            "cases": Counter(_key(o) for o in self.outcomes),
            "false_accepts": Counter(_key(o) for o in self.false_accepts),
            "false_rejects": Counter(_key(o) for o in self.false_rejects),
            "ungraded": Counter(_key(o) for o in self.outcomes if o.result.reward is None),
        }
        return [
            KindCount(group=group, kind=kind, **{name: counter[group, kind] for name, counter in counts.items()})
            for group, kind in counts["cases"]
        ]


Grade = Callable[[str, Mapping[str, Any]], Awaitable[GradeResult]]


async def run(grade: Grade, cases: Iterable[Case], *, columns: Collection[str] = (), accept_from: float = 1.0) -> Report:
    """Grade each case, one after the other. ``columns``: those that the reward's templates need (``grader_spec.columns_of``).

    A text counts as accepted when its reward reaches ``accept_from``.
    """
    outcomes = []
    for case in cases:
        result = await grade(case.text, case.item(columns))
        accepted = result.reward is not None and result.reward >= accept_from
        outcomes.append(Outcome(case=case, result=result, accepted=accepted))
    return Report(outcomes=tuple(outcomes))


def all_cases(topics: Collection[Topic] = ("number", "expression", "choice", "text")) -> list[Case]:
    """The whole corpus, or its cases of ``topics``."""
    from engine.rewards.corpus import distinctions, equivalences, exploits

    return [case for part in (exploits, equivalences, distinctions) for case in part.CASES if case.topic in topics]


def _key(outcome: Outcome) -> tuple[Group, str]:
    return outcome.case.group, outcome.case.kind
