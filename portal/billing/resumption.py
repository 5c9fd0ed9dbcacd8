"""Jobs that billing paused go on when it is paid."""

from __future__ import annotations

from datetime import datetime

import structlog
from django.db import transaction

from portal.billing import gate
from portal.billing.models import Hold
from portal.errors import Conflict
from portal.jobs import tasks
from portal.jobs.models import Job, JobCommand
from tenants.models import Tenant

log = structlog.get_logger(__name__)


def resume_paid(tenant: Tenant, now: datetime) -> int:
    """Ask the tenant's jobs that were paused for money to go on, the oldest first, as far as it reaches; how many."""
    stopped = Hold.objects.filter(tenant=tenant, closed_at=None, stop_code__in=("credit", "payment"))
    return sum(_resume(tenant, pk, now) for pk in stopped.order_by("job").values_list("job", flat=True))


def _resume(tenant: Tenant, job_pk: int, now: datetime) -> bool:
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=job_pk)
        if not job.is_open or job.is_stopping or not Hold.objects.filter(job=job, stop_code__in=("credit", "payment")).exists():
            return False
        try:
            gate.resume(job, now)
        except Conflict as still:
            log.info("job_stays_paused", job=job.public_id, reason=str(still))
            return False
        JobCommand.objects.create(tenant=tenant, job=job, kind=JobCommand.Kind.RESUME, reason="billing: it is paid", requested_at=now)
        tasks.deliver_on_commit(job)
    return True
