"""What a job will cost, before it runs: by the prices and the worst case that its hold is made of, and by what like jobs came to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Sum

from engine.spec import JobSpec
from portal.billing import worst
from portal.billing.models import DailyUsage, Hold
from portal.billing.prices import PriceBook
from tenants.models import Tenant

LOOKS_AT = 20  # jobs of the tenant, the newest


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """In micro-units. ``held``: set aside at the start. ``at_most``: all steps at their worst. ``likely``: None without earlier jobs."""

    held: int
    at_most: int
    likely: int | None
    jobs: int


def estimate(tenant: Tenant, spec: JobSpec, now: datetime, steps_ahead: int) -> Estimate:
    step = PriceBook.read().most(worst.step_tokens(spec), spec.base_model, now)
    at_most = spec.train.steps * step
    share, jobs = _share(tenant, now)
    return Estimate(
        held=min(steps_ahead, spec.train.steps) * step,
        at_most=at_most,
        likely=None if share is None else round(at_most * share),
        jobs=jobs,
    )


def _share(tenant: Tenant, now: datetime) -> tuple[float | None, int]:
    """What the tenant's last jobs cost of the worst that their committed steps could have cost; and how many jobs that tells of."""
    holds = list(Hold.objects.filter(tenant=tenant, job__version__gt=0).select_related("job").order_by("-pk")[:LOOKS_AT])
    sources = [hold.job.public_id for hold in holds]
    spent = DailyUsage.objects.filter(tenant=tenant, source__in=sources).aggregate(total=Sum("amount_micros"))["total"]
    book = PriceBook.read()
    could = sum(hold.job.version * book.most(hold.step_tokens, hold.job.base_model, now) for hold in holds)
    return (-int(spent or 0) / could, len(holds)) if could else (None, 0)
