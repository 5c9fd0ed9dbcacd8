"""What it costs to try a reward: the tokens of its judges, and nothing else. A reward without judges is tried for nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from engine.grader_spec import parse_grader
from portal.billing import spending, worst
from portal.billing.models import Hold, Kind, SourceType
from portal.billing.spending import Spender
from portal.rewards.lab_cases import size_of
from tenants.models import Tenant

GRADING = "grading"  # the ledger's name of answers that were graded one by one
LASTS = timedelta(minutes=15)  # longer than a trial may take
CORPUS_CHARACTERS = 100_000  # of the cases of the corpus that one call to the engine grades


def hold(tenant: Tenant, trial: str, grader: dict[str, Any], cases: Sequence[dict[str, Any]], repeats: int, now: datetime) -> Hold | None:
    """Hold what the judges may take for ``cases``; without cases, for as many of the corpus as one call grades. Once more: filled up.

    ``trial``: its public id. None: there are no judges. Raises the refusals of ``spending.hold``.
    """
    parsed = parse_grader(grader)
    sizes = [size_of(case) for case in cases] or [CORPUS_CHARACTERS // 100] * 100
    tokens = repeats * sum(worst.judged_tokens(parsed, size) for size in sizes)
    return spending.hold(_spender(tenant, trial), {Kind.JUDGE: tokens}, now, lasts=LASTS) if tokens else None


def bill(tenant: Tenant, trial: str, start: int, outcomes: Iterable[dict[str, Any]], now: datetime) -> None:
    """What the judges took for the ``outcomes`` of the cases from number ``start`` on; more may come."""
    spender, tokens = _spender(tenant, trial), {Kind.JUDGE: sum(outcome["judge_tokens"] for outcome in outcomes)}
    spending.bill(spender, spending.used(spender, tokens, now, step=start), now, over=False)


def bill_one(held: Hold, outcome: dict[str, Any] | None, now: datetime) -> None:
    """An answer graded by itself is a row of nothing: its hold's number is its key, and all are one source. None: no outcome."""
    spender, tokens = _spender(held.tenant, held.source), {Kind.JUDGE: outcome["judge_tokens"] if outcome else 0}
    spending.bill(spender, spending.used(spender, tokens, now, step=held.pk, source=GRADING), now)


def release(tenant: Tenant, trial: str, now: datetime) -> None:
    """Nothing more is held for it. Twice is once."""
    spending.bill(_spender(tenant, trial), [], now)


def _spender(tenant: Tenant, trial: str) -> Spender:
    return Spender(tenant=tenant, source_type=SourceType.TRIAL, source=trial, model="", words="the judges of this trial")
