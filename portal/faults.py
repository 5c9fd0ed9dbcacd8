"""What people and programs get when something of ours broke: a page or JSON, and whether it is worth to ask again.

A database that restarts or cannot be reached is not a fault of the request: 503, with when to come again, and the page comes back by
itself. Anything else is a 500, whose traceback Django has logged. What no view may see is refused here too, in the same shapes.
"""

from __future__ import annotations

import sys
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.shortcuts import render

RETRY_SECONDS = 3
PROGRAMS = ("/api/", "/v1/")


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500; the error that it is about is the one being handled."""
    away = isinstance(sys.exc_info()[1], (OperationalError, InterfaceError))
    if asks_as_program(request):
        told = (
            ("The database does not answer at the moment; try again shortly.", "service_unavailable", "database_away")
            if away
            else ("Something broke on our side. The fault is in the log under this answer's X-Request-Id.", "server_error", "internal")
        )
        response: HttpResponse = for_program(request, 503 if away else 500, *told)
    elif away:
        # Without the context processors, which ask the database.
        response = render(None, "503.html", {"seconds": RETRY_SECONDS}, status=503)
    else:
        response = render(None, "500.html", status=500)
    if away:
        response["Retry-After"] = str(RETRY_SECONDS)
    return response


def nul_in_address(request: HttpRequest) -> HttpResponse:
    message = "The address contains a NUL character."
    if asks_as_program(request):
        return for_program(request, 400, message, "invalid_request", "invalid")
    return HttpResponseBadRequest(message, content_type="text/plain")


def asks_as_program(request: HttpRequest) -> bool:
    return request.path_info.startswith(PROGRAMS)


def for_program(request: HttpRequest, status: int, message: str, kind: str, code: str) -> JsonResponse:
    """In the error shape of the API that was asked. ``kind``: our ``type``; OpenAI's follows from the status."""
    if request.path_info.startswith("/v1/"):
        body: dict[str, Any] = {"type": "server_error" if status >= 500 else "invalid_request_error"}
    else:
        body = {"type": kind, "problems": []}
    return JsonResponse({"error": {"message": message, "param": None, "code": code, **body}}, status=status)
