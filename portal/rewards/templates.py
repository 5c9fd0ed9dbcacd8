"""The columns that a reward's templates need, held against a dataset before a job starts."""

from __future__ import annotations

from typing import Any

from engine.grader_spec import parse_grader, template_problems


def problems(grader: dict[str, Any], columns: list[str] | None) -> list[tuple[str, str]]:
    """What is wrong with each template of a stored ``grader``; against ``columns`` too, unless None (no dataset chosen yet)."""
    return [(f"grader.{field}", message) for field, message in template_problems(parse_grader(grader), columns)]
