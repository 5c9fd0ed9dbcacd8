"""A run's results as figures: pure functions of its cases."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from portal.rewards import lessons

BINS = 20
# The first case also starts the worker that grades all others.
_FEWEST_WITHOUT_FIRST = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A case with what came of it, as the table shows it. ``parts``: (name, reward) beside the whole's own."""

    number: int
    case: dict[str, Any]
    outcomes: list[dict[str, Any]]
    parts: list[tuple[str, float | None]]

    @property
    def reward(self) -> float | None:
        return self.outcomes[0]["reward"]

    @property
    def error(self) -> dict[str, Any] | None:
        return self.outcomes[0]["error"]

    @property
    def milliseconds(self) -> float:
        return 1000 * self.outcomes[0]["seconds"]

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The row as it is shown; in a template ``item.items`` would be a column called items."""
        item = self.case.get("item", {})
        return [(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for name, value in item.items()]

    @property
    def differs(self) -> bool:
        return len({_essence(outcome) for outcome in self.outcomes}) > 1

    @property
    def others(self) -> list[str]:
        """What the repetitions gave, in words."""
        return [said(outcome) for outcome in self.outcomes]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceError:
    """``line`` of the tenant's source, its text, and the cases that failed there with the first one's message."""

    part: str
    line: int
    text: str
    message: str
    cases: int


@dataclass(frozen=True, kw_only=True, slots=True)
class KindLine:
    group: str
    kind: str
    cases: int
    false_accepts: list[Line]
    false_rejects: list[Line]
    ungraded: int

    @property
    def faults(self) -> list[tuple[str, list[Line]]]:
        """(what to learn from it, the cases)."""
        told = [
            (lessons.false_accept(self.group, self.kind), self.false_accepts),
            (lessons.false_reject(self.kind), self.false_rejects),
        ]
        return [(text, lines) for text, lines in told if lines]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    graded: int
    invalid: int
    not_applicable: int
    mean: float | None
    lowest: float | None
    highest: float | None
    p50_milliseconds: float | None
    p99_milliseconds: float | None
    differing: int
    judge_tokens: int
    bins: list[dict[str, Any]] = field(default_factory=list)
    error_kinds: list[tuple[str, int]] = field(default_factory=list)


def lines_of(cases: Iterable[Any], name: str) -> list[Line]:
    """The graded cases; ``name``: the grader's own, whose part is the whole."""
    return [
        Line(number=case.number, case=case.case, outcomes=case.result["outcomes"], parts=_parts(case.result["outcomes"][0], name))
        for case in cases
        if case.result
    ]


def figures(lines: Sequence[Line]) -> Figures:
    rewards = [line.reward for line in lines if line.reward is not None]
    times = sorted(line.milliseconds for line in (lines[1:] if len(lines) > _FEWEST_WITHOUT_FIRST else lines))
    kinds = Counter(line.error["kind"] or "invalid" for line in lines if line.error)
    return Figures(
        graded=len(rewards),
        invalid=kinds.total(),
        not_applicable=sum(line.reward is None and not line.error for line in lines),
        mean=sum(rewards) / len(rewards) if rewards else None,
        lowest=min(rewards, default=None),
        highest=max(rewards, default=None),
        p50_milliseconds=_percentile(times, 0.5),
        p99_milliseconds=_percentile(times, 0.99),
        differing=sum(line.differs for line in lines),
        judge_tokens=sum(outcome.get("judge_tokens", 0) for line in lines for outcome in line.outcomes),
        bins=_bins(rewards),
        error_kinds=kinds.most_common(),
    )


def source_errors(lines: Sequence[Line], sources: dict[str, str]) -> list[SourceError]:
    """Errors by line of the source, the commonest first. Of a combination's parts, the failing one is named in the message."""
    found: Counter[tuple[str, int]] = Counter()
    first: dict[tuple[str, int], str] = {}
    for line in lines:
        if line.error and line.error.get("line"):
            part = next((name for name in sources if name and f" {name}: " in line.error["message"]), next(iter(sources), ""))
            key = part, line.error["line"]
            found[key] += 1
            first.setdefault(key, line.error["message"])
    return [
        SourceError(part=part, line=number, text=_line_of(sources.get(part, ""), number), message=first[part, number], cases=count)
        for (part, number), count in found.most_common(20)
    ]


def by_kind(lines: Sequence[Line], accept_from: float) -> list[KindLine]:
    """The corpus's kinds in its order. A text counts as accepted when its reward reaches ``accept_from``."""
    kinds: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        kinds.setdefault((line.case["group"], line.case["kind"]), []).append(line)
    return [
        KindLine(
            group=group,
            kind=kind,
            cases=len(found),
            false_accepts=[line for line in found if line.reward is not None and line.reward >= accept_from and not line.case["right"]],
            false_rejects=[line for line in found if line.reward is not None and line.reward < accept_from and line.case["right"]],
            ungraded=sum(line.reward is None for line in found),
        )
        for (group, kind), found in kinds.items()
    ]


def said(outcome: dict[str, Any]) -> str:
    if outcome["error"]:
        return outcome["error"]["kind"] or "invalid"
    return "does not apply" if outcome["reward"] is None else f"{outcome['reward']:g}"


def _essence(outcome: dict[str, Any]) -> tuple[Any, ...]:
    error = outcome["error"] or {}
    return outcome["reward"], tuple(sorted(outcome["components"].items())), error.get("kind"), error.get("line")


def _parts(outcome: dict[str, Any], name: str) -> list[tuple[str, float | None]]:
    return [(part, value) for part, value in outcome["components"].items() if part != name]


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    """The nearest rank."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _bins(rewards: Sequence[float]) -> list[dict[str, Any]]:
    """Equal steps from the lowest to the highest; [0, 1] where all lie within."""
    if not rewards:
        return []
    low, high = min(0.0, *rewards), max(1.0, *rewards)
    counts = Counter(min(BINS - 1, int((reward - low) / (high - low) * BINS)) for reward in rewards)
    step = (high - low) / BINS
    return [{"from": low + n * step, "to": low + (n + 1) * step, "rows": counts[n]} for n in range(BINS)]


def _line_of(source: str, number: int) -> str:
    lines = source.split("\n")
    return lines[number - 1].strip()[:200] if 0 < number <= len(lines) else ""
