"""Organisations as operators see them: found by name or id, with plan, money, use and what was done to them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce

from portal.billing import quotas
from portal.billing.models import TOKEN_KINDS, DailyUsage
from portal.console.models import Act
from portal.jobs.models import OPEN_STATES, Job
from tenants.models import Tenant

LAST_ACTS = 20
LAST_JOBS = 50
ID_END = 6  # as much of an id as tells two organisations of one name apart


def found(text: str, now: datetime) -> Any:
    """A queryset of tenants, each with ``open_jobs`` and ``month_tokens``; those whose name, id or member's address holds ``text``."""
    first = now.astimezone(UTC).date().replace(day=1)
    used = DailyUsage.objects.filter(tenant=OuterRef("pk"), day__gte=first, kind__in=TOKEN_KINDS).order_by().values("tenant")
    opened = Job.objects.filter(tenant=OuterRef("pk"), state__in=OPEN_STATES).order_by().values("tenant")
    rows = Tenant.objects.select_related("account__plan").annotate(
        open_jobs=Coalesce(Subquery(opened.annotate(n=Count("pk")).values("n")), 0),
        month_tokens=Coalesce(Subquery(used.annotate(n=Sum("quantity")).values("n")), 0),
    )
    if text:
        rows = rows.filter(Q(name__icontains=text) | Q(public_id=text) | Q(memberships__user__email__iexact=text)).distinct()
    return rows.order_by("-open_jobs", "name", "pk")


def told_apart(public_ids: Iterable[str]) -> dict[str, str]:
    """What operators call these organisations: by name, and where several have one name, with the end of each one's id."""
    names = dict(Tenant.objects.filter(public_id__in=public_ids).values_list("public_id", "name"))
    shared = Tenant.objects.filter(name__in=set(names.values())).order_by().values("name").annotate(n=Count("pk")).filter(n__gt=1)
    several = set(shared.values_list("name", flat=True))
    return {public_id: f"{name} ({public_id[-ID_END:]})" if name in several else name for public_id, name in names.items()}


def by_id(public_id: str) -> Tenant | None:
    return Tenant.objects.select_related("account__plan").filter(public_id=public_id).first()


def job_by_id(public_id: str) -> Job | None:
    return Job.objects.select_related("tenant").filter(public_id=public_id).first()


def portrait(tenant: Tenant, now: datetime) -> dict[str, Any]:
    return {
        "organisation": tenant,  # the frame takes a ``tenant`` for the one that one looks from
        "account": getattr(tenant, "account", None),
        "uses": quotas.uses(tenant, now),
        "limits": [
            (name, name.removesuffix("_bytes").replace("_", " ").capitalize(), limit) for name, limit in quotas.limits(tenant).items()
        ],
        "overrides": {override.quota: override for override in tenant.quota_overrides.all()},
        "members": tenant.memberships.select_related("user").order_by("id")[:LAST_JOBS],
        "open_jobs": tenant.jobs.filter(state__in=OPEN_STATES)[:LAST_JOBS],
        "acts": acts(tenant.public_id),
    }


def acts(about: str) -> list[Act]:
    return list(Act.objects.filter(about=about)[:LAST_ACTS])


def all_acts(text: str) -> Any:
    rows = Act.objects.all()
    return rows.filter(Q(about=text) | Q(by__iexact=text) | Q(deed=text)) if text else rows
