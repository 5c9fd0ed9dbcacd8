"""What jobs have cost so far, reversals taken off, from the daily sums."""

from __future__ import annotations

from typing import Any

from django.db.models import BigIntegerField, OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce

from portal.billing import gate
from portal.billing.models import DailyUsage, Hold
from portal.billing.worth import worth
from portal.jobs.models import Job
from tenants.models import Tenant


def with_cost(jobs: Any) -> Any:
    """``jobs`` (a queryset), each with ``cost_micros``; one query for all."""
    used = DailyUsage.objects.filter(tenant=OuterRef("tenant"), source=OuterRef("public_id")).order_by().values("source")
    total = Subquery(used.annotate(total=-1 * Sum("amount_micros")).values("total"), output_field=BigIntegerField())
    return jobs.annotate(cost_micros=Coalesce(total, 0))


def of(job: Job) -> int:
    """In micro-units."""
    known = getattr(job, "cost_micros", None)
    if known is not None:
        return int(known)
    return of_source(job.tenant, job.public_id)


def of_source(tenant: Tenant, source: str) -> int:
    """In micro-units, of anything that the ledger knows by that name."""
    return -int(DailyUsage.objects.filter(tenant=tenant, source=source).aggregate(total=Sum("amount_micros"))["total"] or 0)


def cost_of(job: Job) -> dict[str, Any]:
    """What the run page shows: the job, its hold, its cost and its tokens."""
    micros, tokens = gate.spent(job)
    hold = Hold.objects.filter(job=job).first()
    return {"job": job, "hold": hold, "cost": micros, "tokens": tokens, "worth": worth(job, micros) if hold else None}


def device_seconds(job: Job) -> tuple[float, float]:
    """(rollout, training) seconds of the committed steps: how long each device had work of this job. Rollouts of several jobs overlap."""
    found = job.events.filter(kind="step").values_list("data__seconds__rollout", "data__seconds__train")
    rollout, train = 0.0, 0.0
    for of_rollout, of_train in found:
        rollout += of_rollout or 0.0
        train += of_train or 0.0
    return rollout, train
