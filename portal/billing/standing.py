"""Whether a tenant has paid what it owes, from the mirrored invoices and disputes: never stored, so never out of date.

A payment fails → days of grace, in which everything goes on → no new jobs → running jobs pause after the step that runs. Nothing is ever
cancelled or deleted for money.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Min

from portal.billing.models import Dispute, Invoice
from tenants.models import Tenant

STOPS_AFTER = timedelta(days=3)  # from the end of the grace: what runs gets so much longer than what is new
CONTESTED = ("needs_response", "under_review")


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """``stage``: fine | grace | no_new_jobs | stopped. ``since``: when a payment first failed."""

    stage: str
    since: datetime | None = None
    no_new_jobs_at: datetime | None = None
    stops_at: datetime | None = None
    reason: str = ""

    @property
    def may_start(self) -> bool:
        return self.stage in ("fine", "grace")

    @property
    def may_go_on(self) -> bool:
        return self.stage != "stopped"


def of(tenant: Tenant, now: datetime) -> Standing:
    failed = Invoice.objects.filter(tenant=tenant, status__in=("open", "uncollectible")).aggregate(first=Min("failed_at"))["first"]
    contested = Dispute.objects.filter(tenant=tenant, status__in=CONTESTED).aggregate(first=Min("created_at"))["first"]
    since = min((moment for moment in (failed, contested) if moment), default=None)
    if since is None:
        return Standing(stage="fine")
    ends = since + timedelta(days=settings.GRACE_DAYS)
    stops = ends + STOPS_AFTER
    what = "an invoice is unpaid" if failed else "a payment is disputed with your bank"
    if now < ends:
        stage, reason = "grace", f"{what} since {since:%Y-%m-%d}; new jobs can start until {ends:%Y-%m-%d}"
    elif now < stops:
        stage, reason = (
            "no_new_jobs",
            f"{what} since {since:%Y-%m-%d}, so no new job, chat, probe or judge can start; settle it on the billing page",
        )
    else:
        stage, reason = "stopped", f"{what} since {since:%Y-%m-%d}, so jobs pause; settle it on the billing page, and they go on"
    return Standing(stage=stage, since=since, no_new_jobs_at=ends, stops_at=stops, reason=reason)
