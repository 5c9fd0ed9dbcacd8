"""Looking at the site as an organisation sees it: an operator, for half an hour, with a reason, and unable to change anything.

The operator is no member, so every action refuses him by itself (``tenants.access.require``); only what a viewer sees is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from django.utils.decorators import sync_and_async_middleware

from portal.console.access import may_operate
from tenants import walls_rows
from tenants.models import Role, Tenant

SESSION_KEY = "operator_viewing"
OPERATORS = ("/console/", "/admin/", "/metrics")
LASTS = timedelta(minutes=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewing:
    """What the banner says."""

    tenant: Tenant
    reason: str
    until: datetime


@sync_and_async_middleware
def middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Behind ``tenants.middleware``, whose answer it replaces while somebody is viewing."""
    if iscoroutinefunction(get_response):

        async def view(request: HttpRequest) -> Any:
            await sync_to_async(attach)(request)
            with rows_of(request):
                return await get_response(request)
    else:

        def view(request: HttpRequest) -> Any:
            attach(request)
            with rows_of(request):
                return get_response(request)

    return view


def rows_of(request: HttpRequest) -> AbstractContextManager[None]:
    """Which rows exist for this request: those of its tenant, except under the operators' paths. A token's tenant comes later."""
    if request.tenant is None or request.path_info.startswith(OPERATORS):
        return walls_rows.everything()
    return walls_rows.inside(request.tenant.pk)


def begin(request: HttpRequest, tenant: Tenant, reason: str, now: datetime) -> None:
    request.session[SESSION_KEY] = {"tenant": tenant.public_id, "reason": reason, "until": (now + LASTS).timestamp()}


def end(request: HttpRequest) -> str | None:
    """The public id of the organisation that was viewed, if any was."""
    known = request.session.pop(SESSION_KEY, None)
    return known["tenant"] if known else None


def attach(request: HttpRequest) -> None:
    request.viewing = viewing_of(request.session, request.user) if settings.SESSION_COOKIE_NAME in request.COOKIES else None
    if request.viewing is not None:
        request.tenant, request.role = request.viewing.tenant, Role.VIEWER


def viewing_of(session: Mapping[str, Any], user: Any) -> Viewing | None:
    """Who is no operator any more, or whose time is over, sees his own organisation again."""
    known = session.get(SESSION_KEY)
    if not known or known["until"] <= timezone.now().timestamp() or not may_operate(user):
        return None
    tenant = Tenant.objects.filter(public_id=known["tenant"]).first()
    until = datetime.fromtimestamp(known["until"], timezone.get_default_timezone())
    return None if tenant is None else Viewing(tenant=tenant, reason=known["reason"], until=until)


def tenant_of(session: Mapping[str, Any], user: Any) -> Tenant | None:
    """The organisation that this person looks at just now."""
    viewing = viewing_of(session, user)
    return None if viewing is None else viewing.tenant
