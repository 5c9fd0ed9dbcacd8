"""Finding a tenant's things by name or id: what the command palette offers besides its commands."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal.pages.access import tenant_page
from portal.query import text
from tenants.models import Tenant

EACH = 6
KINDS = (("jobs", "Job", "jobs:detail"), ("datasets", "Dataset", "datasets:detail"), ("rewards", "Reward", "rewards:detail"))


@never_cache
@require_safe
@tenant_page
def search(request: HttpRequest) -> HttpResponse:
    """``?q=``: {"found": [{"kind", "name", "url"}]}, the newest first; without ``q`` the newest of each."""
    return JsonResponse({"found": found(request.tenant, text(request, "q", 100))})


def found(tenant: Tenant, wanted: str) -> list[dict[str, Any]]:
    """At most ``EACH`` of each kind, in one query per kind."""
    return [
        {"kind": kind, "name": thing.name, "url": reverse(view, args=[thing.public_id])}
        for relation, kind, view in KINDS
        for thing in getattr(tenant, relation).filter(Q(name__icontains=wanted) | Q(public_id=wanted)).order_by("-id")[:EACH]
    ]
