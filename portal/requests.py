"""What happens to every request at the edge: it gets an id, what is asked from inside may call us anything, and one with a NUL character in
its address is refused.

The id is ours alone (a client's own would let it write into the logs under another's): it stands in the answer's ``X-Request-Id``, in each
log line and in the audit log. PostgreSQL refuses a NUL with an error of its own, so no view should see one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from portal.faults import nul_in_address
from tenants.ids import new_id


@sync_and_async_middleware
def request_id(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            return _marked(request, await get_response(_mark(request)))
    else:

        def middleware(request: HttpRequest) -> HttpResponse:
            return _marked(request, get_response(_mark(request)))

    return middleware


def _mark(request: HttpRequest) -> HttpRequest:
    request.request_id = new_id("req")
    request.META["HTTP_X_REQUEST_ID"] = request.request_id  # the log's middleware reads it there
    if request.path_info in settings.ASKED_FROM_INSIDE:
        request.META["HTTP_HOST"] = settings.ALLOWED_HOSTS[0]  # nothing of their answers goes by the name
    return request


def _marked(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    response["X-Request-Id"] = request.request_id
    for name, value in getattr(request, "rate_headers", {}).items():
        response[name] = value
    return response


@sync_and_async_middleware
def no_nul(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            return nul_in_address(request) if _has_nul(request) else await get_response(request)
    else:

        def middleware(request: HttpRequest) -> HttpResponse:
            return nul_in_address(request) if _has_nul(request) else get_response(request)

    return middleware


def _has_nul(request: HttpRequest) -> bool:
    return "\x00" in request.path_info or "%00" in request.META.get("QUERY_STRING", "")
