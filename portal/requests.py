"""Requests that no view should see: a NUL character in the address, which PostgreSQL refuses with an error of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.utils.decorators import sync_and_async_middleware


@sync_and_async_middleware
def no_nul(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            return _refuse() if _has_nul(request) else await get_response(request)
    else:

        def middleware(request: HttpRequest) -> HttpResponse:
            return _refuse() if _has_nul(request) else get_response(request)

    return middleware


def _has_nul(request: HttpRequest) -> bool:
    return "\x00" in request.path_info or "%00" in request.META.get("QUERY_STRING", "")


def _refuse() -> HttpResponse:
    return HttpResponseBadRequest("The address contains a NUL character.", content_type="text/plain")
