"""The gate: may this job begin, and may it go on? Asked at submission, after each step, and when a paused job is resumed.

The engine begins the next step when one commits, and a pause lets that step finish. So two steps are always covered: the one that
runs and the one after it. When the second is not, the job is asked to pause, and the first is paid for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import structlog
from django.db import transaction
from django.db.models import Sum

from engine.spec import JobSpec
from portal.billing import estimates, holds, ledger, limits, quotas, standing, worst
from portal.billing.budgets import Budget
from portal.billing.ledger import MAX_QUANTITY
from portal.billing.models import TOKEN_KINDS, Hold
from portal.billing.money import shown
from portal.billing.prices import PriceBook
from portal.billing.refusals import NoCredit, PaymentDue, SpendingLimit
from portal.errors import Conflict, Invalid
from portal.jobs import tasks
from portal.jobs.models import Job, JobCommand, State

log = structlog.get_logger(__name__)

STEPS_AHEAD = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Obstacle:
    """Why a job may not go on. ``code``: credit | budget | quota | limit | payment."""

    code: str
    reason: str


def admit(job: Job, spec: JobSpec, budget: Budget, now: datetime) -> Hold:
    """Hold what the first steps may cost, in the transaction that makes the job. Raises ``Invalid`` or one of its kinds."""
    if not (paid := standing.of(job.tenant, now)).may_start:
        raise PaymentDue([("payment", paid.reason)])
    tokens = worst.step_tokens(spec)
    if (most := max(tokens.values())) > MAX_QUANTITY:
        raise Invalid([("rollout.prompts_per_step", f"a step may take {most:,} tokens of a kind, at most {MAX_QUANTITY:,} are billable")])
    steps = min(STEPS_AHEAD, spec.train.steps)
    needed = steps * PriceBook.read().most(tokens, spec.base_model, now)
    _check_budget(budget, needed, steps * sum(tokens.values()))
    quotas.admit(job.tenant, steps * sum(tokens.values()), now)
    if over := limits.obstacle(job.tenant, needed, now):
        raise SpendingLimit([("limit", over)])
    found = estimates.estimate(job.tenant, spec, now, STEPS_AHEAD)
    terms = {"step_tokens": tokens, "estimate_micros": found.at_most if found.likely is None else found.likely}
    try:
        return holds.place(job, needed, now, budget_micros=budget.micros, budget_tokens=budget.tokens, **terms)
    except holds.NotCovered as lacking:
        raise NoCredit([("credit", _no_credit(lacking.needed, lacking.available))]) from None


def after_step(job: Job, now: datetime) -> None:
    """Top up for the steps to come, or ask the job to pause. Runs in the transaction that bills the step."""
    hold = Hold.objects.select_related("tenant").filter(job=job, closed_at=None).first()
    if hold is None or hold.stop_code or job.state == State.PAUSED or not job.is_open:
        return
    obstacle = _obstacle(job, hold, now)
    if obstacle is None:
        return
    Hold.objects.filter(pk=hold.pk).update(stop_code=obstacle.code, stop_reason=obstacle.reason[:300])
    JobCommand.objects.create(
        tenant_id=job.tenant_id, job=job, kind=JobCommand.Kind.PAUSE, reason=f"billing: {obstacle.reason}"[:500], requested_at=now
    )
    log.info("job_paused_by_billing", job=job.public_id, code=obstacle.code)
    tasks.deliver_on_commit(job)


def resume(job: Job, now: datetime) -> None:
    """Raise ``NoCredit``, ``QuotaExceeded`` or ``PaymentDue`` where a paused job may not go on; else what it needs is held."""
    with transaction.atomic():
        hold = Hold.objects.select_related("tenant").filter(job=job, closed_at=None).first()
        if hold is None:
            return
        if obstacle := _obstacle(job, hold, now):
            raise _REFUSALS[obstacle.code]([(obstacle.code, obstacle.reason)])
        Hold.objects.filter(pk=hold.pk).update(stop_code="", stop_reason="")


_REFUSALS: dict[str, type[Conflict]] = {
    "quota": quotas.QuotaExceeded,
    "payment": PaymentDue,
    "limit": SpendingLimit,
    "credit": NoCredit,
    "budget": NoCredit,
}


def spent(job: Job) -> tuple[int, int]:
    """(micro-units, tokens) that the job has used so far, reversals taken off."""
    rows = job.tenant.daily_usage.filter(source=job.public_id, kind__in=TOKEN_KINDS)
    sums = rows.aggregate(money=Sum("amount_micros"), tokens=Sum("quantity"))
    return -int(sums["money"] or 0), int(sums["tokens"] or 0)


def _obstacle(job: Job, hold: Hold, now: datetime) -> Obstacle | None:
    """What keeps the job from its next steps; None: they are covered and held."""
    steps = min(STEPS_AHEAD, job.steps - job.version)
    if steps <= 0:
        return None
    if not (paid := standing.of(hold.tenant, now)).may_go_on:
        return Obstacle(code="payment", reason=paid.reason)
    needed = steps * PriceBook.read().most(hold.step_tokens, job.base_model, now)
    tokens = steps * sum(hold.step_tokens.values())
    if over := _over_budget(job, hold, needed, tokens):
        return Obstacle(code="budget", reason=over)
    if over := quotas.month_obstacle(hold.tenant, quotas.limits(hold.tenant)["tokens_per_month"], tokens, now):
        return Obstacle(code="quota", reason=over)
    if over := limits.obstacle(hold.tenant, needed, now):
        return Obstacle(code="limit", reason=over)
    if not holds.raise_to(hold, needed, now):
        available = ledger.account_of(hold.tenant, now).available_micros
        return Obstacle(code="credit", reason=_no_credit(needed - hold.micros, available))
    return None


def _over_budget(job: Job, hold: Hold, needed: int, tokens: int) -> str:
    money, used = spent(job)
    if hold.budget_micros is not None and money + needed > hold.budget_micros:
        return f"the job has cost {shown(money)} of its budget of {shown(hold.budget_micros)}, and its next steps may cost {shown(needed)}"
    if hold.budget_tokens is not None and used + tokens > hold.budget_tokens:
        return f"the job has used {used:,} of its budget of {hold.budget_tokens:,} tokens, and its next steps may take {tokens:,}"
    return ""


def _check_budget(budget: Budget, needed: int, tokens: int) -> None:
    problems = []
    if budget.micros is not None and budget.micros < needed:
        problems.append(
            ("budget.micros", f"its first steps alone may cost {shown(needed)} ({needed} micro-units); raise it or ask for less")
        )
    if budget.tokens is not None and budget.tokens < tokens:
        problems.append(("budget.tokens", f"its first steps alone may take {tokens:,} tokens; raise it or ask for less"))
    if problems:
        raise Invalid(problems)


def _no_credit(needed: int, available: int) -> str:
    return (
        f"{shown(needed)} must be set aside for its next steps, {shown(available)} of your credit is free; "
        "wait until other jobs end, ask for a smaller step, or ask your operator for credit"
    )
