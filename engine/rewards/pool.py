"""Any grader, for an event loop: cheap ones in place, ``math`` in its processes. Each completion is graded as soon as it is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.rewards.graders import GradeResult, filled, grade, invalid
from engine.rewards.math import MathPool
from engine.rewards.templates import TemplateError
from engine.spec import Grader, MathGrader


class GraderPool:
    """``math_processes`` comparisons run at once; their processes start with the first math job, or with ``start``."""

    def __init__(self, *, math_processes: int = 1, math_seconds: float = 5.0):
        self._math = MathPool(size=math_processes, seconds=math_seconds)

    async def start(self) -> None:
        """Start the math processes ahead of time."""
        await self._math.start()

    async def close(self) -> None:
        await self._math.close()

    async def grade(self, grader: Grader, text: str, item: Mapping[str, Any]) -> GradeResult:
        """Never raises on any text or item; what cannot be graded is invalid, with the reason."""
        if not isinstance(grader, MathGrader):
            return grade(grader, text, item)
        try:
            answer, reference = filled(grader, text, item)
        except TemplateError as error:
            return invalid(str(error))
        return await self._math.compare(answer, reference)
