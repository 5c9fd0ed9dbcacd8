"""``request.tenant``: resolved once, at the edge, for logged-in people; None for everybody else.

The session may name a tenant; a membership that ended or a name that was forged falls back to the person's first tenant. A plain
attribute: a lazy None is not None. API tokens carry their tenant themselves; the API's own authentication sets it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest
from django.utils.decorators import sync_and_async_middleware

from tenants import origin
from tenants.addresses import client_address
from tenants.models import Membership, Tenant

SESSION_KEY = "tenant"


@sync_and_async_middleware
def tenant_middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> Any:
            await sync_to_async(attach)(request)
            return await get_response(request)
    else:

        def middleware(request: HttpRequest) -> Any:
            attach(request)
            return get_response(request)

    return middleware


def attach(request: HttpRequest) -> None:
    """Set ``request.tenant`` and ``request.role``, and begin the request's origin for the audit log."""
    origin.begin(address=client_address(request), request_id=getattr(request, "request_id", ""))
    membership = _membership(request) if settings.SESSION_COOKIE_NAME in request.COOKIES else None
    request.tenant = membership.tenant if membership else None
    request.role = membership.role if membership else None


def choose(request: HttpRequest, tenant: Tenant) -> None:
    """Make ``tenant`` the session's; whether the person belongs to it is checked on every request."""
    request.session[SESSION_KEY] = tenant.public_id


def _membership(request: HttpRequest) -> Membership | None:
    if not request.user.is_authenticated:
        return None
    memberships = Membership.objects.select_related("tenant").filter(user=request.user).order_by("id")
    chosen = request.session.get(SESSION_KEY)
    return (chosen and memberships.filter(tenant__public_id=chosen).first()) or memberships.first()
