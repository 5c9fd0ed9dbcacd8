"""A run as its page shows it: figures, faults and a page of its cases."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from engine.grader_spec import MAX_REWARD, parse_grader
from portal.billing import costs
from portal.query import choice, decimal, paged
from portal.rewards.figures import by_kind, figures, lines_of, source_errors
from portal.rewards.lab import sources_of
from portal.rewards.models import LabRun

LINES_PER_PAGE = 50
VIEWS = (("all", "All"), ("invalid", "Invalid"), ("differs", "Graded differently"))


def run_context(run: LabRun, request: HttpRequest) -> dict[str, Any]:
    """In the address ``show`` and ``page`` choose lines, ``from`` is what counts as accepted in the corpus."""
    grader = parse_grader(run.grader)
    lines = lines_of(run.cases.all(), grader.name)
    show = choice(request, "show", dict(VIEWS), "all", noun="kind of cases")
    context: dict[str, Any] = {
        "run": run,
        "figures": figures(lines),
        "source_errors": source_errors(lines, sources_of(run.grader)),
        "about": about(run),
        "cost": costs.of_source(run.tenant, run.public_id),
        "show": show,
        "views": [(value, words, len(_shown(lines, value))) for value, words in VIEWS],
        "lines": paged(request, _shown(lines, show), LINES_PER_PAGE),
    }
    if run.on["type"] == "corpus":
        threshold = accept_from(decimal(request, "from"), grader.bounds)
        kinds = by_kind(lines, threshold)
        totals = {name: sum(len(getattr(kind, name)) for kind in kinds) for name in ("false_accepts", "false_rejects")}
        context |= {"corpus_kinds": kinds, "accept_from": threshold, "ungraded": sum(kind.ungraded for kind in kinds), **totals}
    return context


def about(run: LabRun) -> str:
    """What was graded, in a few words."""
    times = "" if run.repeats == 1 else ", each graded twice" if run.repeats == 2 else f", each graded {run.repeats} times"
    times += f", on the engine of {run.base_model}" if run.base_model else ""
    if run.on["type"] == "corpus":
        return f"Adversarial corpus: {', '.join(run.on['topics'])}{times}"
    if run.on["type"] == "rows":
        dataset = run.tenant.datasets.filter(public_id=run.on["dataset"]).first()
        return f"{_count(run.total, 'row')} of {dataset.name if dataset else 'a dataset that is gone'}{times}"
    return f"{_count(run.total, 'answer')} typed by hand{times}"


def accept_from(asked: float | None, bounds: tuple[float, float]) -> float:
    """What was asked for, else the highest reward; of a formula, whose rewards have no bounds to speak of, 1."""
    return asked if asked is not None else bounds[1] if bounds[1] < MAX_REWARD else 1.0


def _shown(lines: list[Any], show: str) -> list[Any]:
    if show == "invalid":
        return [line for line in lines if line.error]
    return [line for line in lines if line.differs] if show == "differs" else lines


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
