"""Gradings that end at their deadline, counted while their batch is still under way: a reward that hangs keeps a batch for minutes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.grader_spec import Grader
from engine.rewards.graders import TIMEOUT, GradeResult
from engine.rollout.sampling import Grading

LATE_KINDS = (TIMEOUT, "hard_timeout")


class CountedGrading:
    """``grading`` for one batch of ``completions``. ``graded`` counts the answers so far, ``late`` those of them that came to nothing at
    the deadline, ``reason`` is the last one's.
    """

    def __init__(self, grading: Grading, *, completions: int):
        self._grading, self.completions = grading, completions
        self.graded = self.late = 0
        self.reason = ""

    async def grade(
        self,
        grader: Grader,
        text: str,
        item: Mapping[str, Any],
        *,
        tool_calls: Sequence[Mapping[str, Any]] = (),
        owner: str = "",
        row: int | None = None,
    ) -> GradeResult:
        result = await self._grading.grade(grader, text, item, tool_calls=tool_calls, owner=owner, row=row)
        self.graded += 1
        if result.kind in LATE_KINDS:
            self.late += 1
            self.reason = result.invalid or ""
        return result

    def told(self) -> dict[str, Any]:
        return {"completions": self.completions, "graded": self.graded, "late": self.late, "reason": self.reason}


def added(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What ``told`` of parts of one job's batch come to together."""
    total: dict[str, Any] = {"completions": 0, "graded": 0, "late": 0, "reason": ""}
    for part in parts:
        total |= {name: total[name] + part[name] for name in ("completions", "graded", "late")}
        total["reason"] = part["reason"] or total["reason"]
    return total
