"""What a detector says when it fires."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.doctor.codes import Code
from engine.doctor.figures import Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """``title``: what is the matter. ``evidence``: where and by which numbers one sees it. ``advice``: one sentence on what to do.

    ``chart``: the chart of the run page that shows it. ``first_step`` to ``last_step``: the steps that were looked at.
    """

    code: Code
    title: str
    chart: str
    first_step: int
    last_step: int
    evidence: str
    numbers: dict[str, float]
    advice: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def found(code: Code, title: str, *, chart: str, steps: Sequence[Step], evidence: str, numbers: dict[str, float], advice: str) -> Finding:
    """A finding about ``steps``; the evidence begins with which they are."""
    first, last = steps[0].step, steps[-1].step
    rounded = {name: float(f"{value:.4g}") for name, value in numbers.items()}
    return Finding(
        code=code,
        title=title,
        chart=chart,
        first_step=first,
        last_step=last,
        evidence=f"Steps {first} to {last}: {evidence}",
        numbers=rounded,
        advice=advice,
    )


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
