"""The export as a download, from a page or by API."""

from __future__ import annotations

from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from portal.accounts.export import archive
from portal.streaming import body
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User


def export_response(request: HttpRequest, tenant: Tenant, user: User) -> StreamingHttpResponse:
    """For owners and admins: it has everybody's data. Raises ``Forbidden``."""
    require(tenant, user, Role.ADMIN)
    now = timezone.now()
    audit.record(tenant, user, "organisation.exported", tenant)
    response = StreamingHttpResponse(body(request, archive(tenant, now)), content_type="application/zip")
    response["Content-Disposition"] = f'attachment; filename="marlaas-{tenant.public_id}-{now:%Y%m%d}.zip"'
    response["Cache-Control"] = "no-store"
    return response
