"""From the engine's events to lines of the ledger: pure functions. What is billed in which case stands in deploy/BILLING.md.

A step is billed when it has committed, once, with the attempt that committed. What was sampled but came to nothing is written down
at 0 with the reason, except where the tenant's own cancel or fault ended the job: then what was sampled is billed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from portal.billing.ledger import MAX_QUANTITY, Line
from portal.billing.models import Kind, SourceType

log = structlog.get_logger(__name__)

BILLABLE = ("step", "eval", "rollout_lost", "ended")
_SKIPPED = {
    "no_signal": "every group scored alike: nothing was trained",
    "nonfinite": "the gradient was not finite: nothing was trained",
}
Prices = Callable[[str, str, datetime], int]  # (kind, model, at) → micro-units for a million


@dataclass(frozen=True, kw_only=True, slots=True)
class Meter:
    """Of one job. ``prices``: the price list at a moment."""

    job: str
    model: str
    prices: Prices

    def step(self, data: dict[str, Any], at: datetime) -> list[Line]:
        """The lines of a committed step (``engine.events.StepData``)."""
        tokens, rollout = data.get("tokens") or {}, data.get("rollout") or {}
        if not tokens:
            log.error("step_without_tokens", job=self.job, version=data.get("version"))
        used = _used(_count(tokens, "prefill"), _count(rollout, "cached_tokens"), _count(tokens, "sampled"), _count(tokens, "judge"))
        free = "the platform failed this step" if data.get("attribution") == "platform" else ""
        untrained = free or _SKIPPED.get(data.get("skipped") or "", "")
        step, attempt, trained = _count(data, "version"), _count(data, "attempt"), {Kind.TRAINED: _count(tokens, "trained")}
        return [
            *self._lines(SourceType.JOB, used, reason=free, step=step, attempt=attempt, at=at),
            *self._lines(SourceType.JOB, trained, reason=untrained, step=step, attempt=attempt, at=at),
        ]

    def evaluation(self, data: dict[str, Any], at: datetime) -> list[Line]:
        """One evaluation of one version is billed once, however often the platform had to do it. Its prompts are free."""
        used = {Kind.SAMPLED: _count(data, "sampled_tokens"), Kind.JUDGE: _count(data, "judge_tokens")}
        return list(self._lines(SourceType.EVALUATION, used, reason="", step=_count(data, "version"), attempt=0, at=at))

    def batch(self, ready: dict[str, Any], at: datetime, *, reason: str) -> list[Line]:
        """A sampled batch (the data of ``rollout_ready``) that no step came of; at 0 when there is a ``reason``."""
        step, attempt = _count(ready, "version") + 1, _count(ready, "attempt")
        used = sampled(ready.get("summary") or {})
        return list(self._lines(SourceType.JOB, used, reason=reason, step=step, attempt=attempt, at=at))

    def _lines(self, source_type: str, used: dict[str, int], *, reason: str, step: int, attempt: int, at: datetime) -> Iterator[Line]:
        for kind, quantity in used.items():
            if quantity:
                price = 0 if reason else self.prices(kind, self.model, at)
                yield Line(
                    source_type=source_type,
                    source=self.job,
                    step=step,
                    attempt=attempt,
                    kind=kind,
                    model=self.model,
                    quantity=quantity,
                    price_micros=price,
                    at=at,
                    reason=reason,
                )


def sampled(summary: dict[str, Any]) -> dict[str, int]:
    """Kind → tokens, of the engine's counts of what it sampled (as in ``engine.events.RolloutSummary``)."""
    prefill = _count({"prefill": _count(summary, "prompt_tokens") + _count(summary, "env_tokens")}, "prefill")
    return _used(prefill, _count(summary, "cached_tokens"), _count(summary, "sampled_tokens"), _count(summary, "judge_tokens"))


def _used(prefill: int, cached: int, sampled: int, judge: int) -> dict[str, int]:
    """Later turns find their own earlier text cached, so more may be cached than was ever new: at most all prefill is."""
    cached = min(cached, prefill)
    return {Kind.PREFILL: prefill - cached, str(Kind.CACHED_PREFILL): cached, Kind.SAMPLED: sampled, Kind.JUDGE: judge}


def _count(data: dict[str, Any], name: str) -> int:
    """A count, or 0 where there is none. One that is not to be believed is told to the operator and billed to nobody."""
    value = data.get(name, 0)
    if type(value) is int and 0 <= value <= MAX_QUANTITY:
        return value
    log.error("count_not_believed", name=name, value=str(value)[:50])
    return 0
