"""The export as a download, from a page or by API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from portal.accounts.export import archive
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User


def export_response(request: HttpRequest, tenant: Tenant, user: User) -> StreamingHttpResponse:
    """For owners and admins: it has everybody's data. Raises ``Forbidden``."""
    require(tenant, user, Role.ADMIN)
    now = timezone.now()
    audit.record(tenant, user, "organisation.exported", tenant)
    chunks = archive(tenant, now)
    # Under ASGI Django would first collect an ordinary iterator whole.
    body = _later(chunks) if isinstance(request, ASGIRequest) else chunks
    response = StreamingHttpResponse(body, content_type="application/zip")
    response["Content-Disposition"] = f'attachment; filename="marlaas-{tenant.public_id}-{now:%Y%m%d}.zip"'
    response["Cache-Control"] = "no-store"
    return response


async def _later(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (chunk := await sync_to_async(next, thread_sensitive=False)(chunks, None)) is not None:
        yield chunk
