"""When there is something to tell, and whom: written in the transaction that changes the job, so none is lost and none comes twice."""

from __future__ import annotations

from datetime import datetime

from portal.jobs.models import Job, State
from portal.notices.models import Delivery, Notice, NoticeSetting
from tenants.models import User

TOLD = (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.PAUSED)


def tell(job: Job, before: str, at: datetime) -> Notice | None:
    """The notice of a job that has just ended or paused, with its deliveries; None for any other change."""
    if job.state == before or job.state not in TOLD:
        return None
    values = {"tenant_id": job.tenant_id, "kind": f"job.{job.state}", "reason": job.state_reason, "at": at}
    notice, made = Notice.objects.get_or_create(job=job, seq=job.last_seq, defaults=values)
    if not made:
        return None
    hooks = job.tenant.webhooks.values_list("pk", flat=True)
    rows = [Delivery(tenant_id=job.tenant_id, notice=notice, webhook_id=hook, next_try_at=at) for hook in hooks]
    if (owner := job.created_by) is not None and _wants_mail(job, owner):
        rows.append(Delivery(tenant_id=job.tenant_id, notice=notice, email=owner.email, next_try_at=at))
    Delivery.objects.bulk_create(rows)
    return notice


def _wants_mail(job: Job, user: User) -> bool:
    """Who has left the organisation is told nothing of it any more."""
    if not user.is_active or not user.memberships.filter(tenant_id=job.tenant_id).exists():
        return False
    setting = NoticeSetting.objects.filter(tenant_id=job.tenant_id, user=user).first()
    return setting is None or setting.email
