"""The web process's part of the metrics: counting each answer, and the door at which Prometheus asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.decorators import sync_and_async_middleware
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST

from portal import metrics, metrics_state


@sync_and_async_middleware
def middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Outermost, so that refusals of other middleware count too."""
    if iscoroutinefunction(get_response):

        async def counted(request: HttpRequest) -> HttpResponse:
            began = time.perf_counter()
            return _count(request, await get_response(request), began)
    else:

        def counted(request: HttpRequest) -> HttpResponse:
            began = time.perf_counter()
            return _count(request, get_response(request), began)

    return counted


def _count(request: HttpRequest, response: HttpResponse, began: float) -> HttpResponse:
    match = request.resolver_match
    metrics.count_request(request.method or "", match.view_name if match else "", response.status_code, time.perf_counter() - began)
    return response


@require_safe
def scrape(request: HttpRequest) -> HttpResponse:
    """For whoever knows the token; to everybody else it is not there. Without a token nobody does."""
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not settings.METRICS_TOKEN or not constant_time_compare(given, settings.METRICS_TOKEN):
        raise Http404
    return HttpResponse(metrics.exposition() + metrics_state.exposition(timezone.now()), content_type=CONTENT_TYPE_LATEST)
