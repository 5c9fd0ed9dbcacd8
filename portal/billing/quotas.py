"""What a tenant may use: its plan, with limits of its own where an operator set some. A refusal says what, how much, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import Sum
from django.db.models.functions import Coalesce

from engine.spec import JobSpec
from portal.billing import setup
from portal.billing.models import QUOTAS, TOKEN_KINDS, Account
from portal.errors import Conflict
from portal.jobs.models import OPEN_STATES
from tenants.models import Tenant

_LABELS = {"open_jobs": "open jobs", "tokens_per_month": "tokens this month", "storage_bytes": "storage"}
_SPEC_FIELDS = {"steps": "train.steps", "rank": "lora.rank", "context_tokens": "rollout.max_new_tokens"}


class QuotaExceeded(Conflict):
    code = "quota_exceeded"


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """One limit and how much of it is used; ``limit`` None: no limit. Tokens, bytes or jobs."""

    quota: str
    limit: int | None
    used: int

    @property
    def label(self) -> str:
        return _LABELS[self.quota]

    @property
    def share(self) -> int | None:
        """In whole percent, at most 100."""
        return None if not self.limit else min(100, 100 * self.used // self.limit)


def limits(tenant: Tenant) -> dict[str, int | None]:
    """Every quota's limit; None: no limit. A tenant without an account yet will have the default plan."""
    account = Account.objects.select_related("plan").filter(tenant=tenant).first()
    plan = account.plan if account else setup.default_plan()
    own = {override.quota: override.limit for override in tenant.quota_overrides.all()}
    return {name: own[name] if name in own else getattr(plan, name) for name in QUOTAS}


def uses(tenant: Tenant, now: datetime) -> list[Use]:
    """The quotas that fill up, as they stand."""
    allowed = limits(tenant)
    return [
        Use(quota="open_jobs", limit=_sum(allowed["running_jobs"], allowed["queued_jobs"]), used=open_jobs(tenant)),
        Use(quota="tokens_per_month", limit=allowed["tokens_per_month"], used=tokens_this_month(tenant, now)),
        Use(quota="storage_bytes", limit=allowed["storage_bytes"], used=stored_bytes(tenant)),
    ]


def spec_problems(allowed: dict[str, int | None], spec: JobSpec) -> list[tuple[str, str]]:
    """(field, message) of each limit that ``spec`` itself goes beyond."""
    if allowed["running_jobs"] == 0:
        return [("quota.running_jobs", "your plan runs no jobs; ask your operator for another")]
    asked = {"steps": spec.train.steps, "rank": spec.lora.rank, "context_tokens": spec.context_tokens}
    return [
        (_SPEC_FIELDS[name], f"your plan allows {most:,} {name.replace('_', ' ')}, this job asks for {count:,}; lower it{_OR_ASK}")
        for name, count in asked.items()
        if (most := allowed[name]) is not None and count > most
    ]


def admit(tenant: Tenant, step_tokens: int, now: datetime) -> None:
    """Raise ``QuotaExceeded`` when the newest job, whose first steps take ``step_tokens`` tokens at most, is one too many."""
    allowed = limits(tenant)
    problems = []
    waiting = _sum(allowed["running_jobs"], allowed["queued_jobs"])
    if waiting is not None and (count := open_jobs(tenant)) > waiting:
        problems.append(
            ("quota.queued_jobs", f"{count - 1:,} jobs run or wait, your plan allows {waiting:,}; wait for one to end{_OR_ASK}")
        )
    if full := _storage_obstacle(tenant, allowed["storage_bytes"], 0):
        problems.append(("quota.storage_bytes", full))
    if lacking := month_obstacle(tenant, allowed["tokens_per_month"], step_tokens, now):
        problems.append(("quota.tokens_per_month", lacking))
    if problems:
        raise QuotaExceeded(problems)


def admit_bytes(tenant: Tenant, more: int) -> None:
    """Raise ``QuotaExceeded`` when ``more`` bytes of datasets do not fit."""
    if full := _storage_obstacle(tenant, limits(tenant)["storage_bytes"], more):
        raise QuotaExceeded([("quota.storage_bytes", full)])


def month_obstacle(tenant: Tenant, limit: int | None, more: int, now: datetime, *, what: str = "a step") -> str:
    """Why ``more`` tokens do not fit into this month; "" when they do."""
    if limit is None or (used := tokens_this_month(tenant, now)) + more <= limit:
        return ""
    return f"{used:,} of this month's {limit:,} tokens are used and {what} may take {more:,}; wait for the next month{_OR_ASK}"


def open_jobs(tenant: Tenant) -> int:
    return int(tenant.jobs.filter(state__in=OPEN_STATES).count())


def tokens_this_month(tenant: Tenant, now: datetime) -> int:
    """Of all kinds, billed or not, since the first of the month (UTC)."""
    first = now.astimezone(UTC).date().replace(day=1)
    rows = tenant.daily_usage.filter(day__gte=first, kind__in=TOKEN_KINDS)
    return int(rows.aggregate(total=Sum("quantity"))["total"] or 0)


def stored_bytes(tenant: Tenant) -> int:
    """Of all versions of all datasets, as stored."""
    sizes = tenant.datasets.aggregate(total=Sum(Coalesce("train_bytes", 0) + Coalesce("eval_bytes", 0)))
    return int(sizes["total"] or 0)


def _storage_obstacle(tenant: Tenant, limit: int | None, more: int) -> str:
    if limit is None or (stored := stored_bytes(tenant)) + more <= limit:
        return ""
    asked = f", this one {more:,} more" if more else ""
    return f"your datasets take {stored:,} bytes{asked}, and your plan allows {limit:,}{_OR_ASK}"


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


_OR_ASK = ", or ask your operator for more"
