"""What people and programs get when something of ours broke: a page or JSON, and whether it is worth to ask again.

A database that restarts or cannot be reached is not a fault of the request: 503, with when to come again, and the page comes back by
itself. Anything else is a 500, whose traceback Django has logged.
"""

from __future__ import annotations

import sys
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

RETRY_SECONDS = 3
PROGRAMS = ("/api/", "/v1/")


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500; the error that it is about is the one being handled."""
    away = isinstance(sys.exc_info()[1], (OperationalError, InterfaceError))
    if request.path_info.startswith(PROGRAMS):
        response: HttpResponse = JsonResponse(
            {"error": _body(away, openai=request.path_info.startswith("/v1/"))}, status=503 if away else 500
        )
    elif away:
        # Without the context processors, which ask the database.
        response = render(None, "503.html", {"seconds": RETRY_SECONDS}, status=503)
    else:
        response = render(None, "500.html", status=500)
    if away:
        response["Retry-After"] = str(RETRY_SECONDS)
    return response


def _body(away: bool, *, openai: bool) -> dict[str, Any]:
    told = (
        ("The database does not answer at the moment; try again shortly.", "service_unavailable", "database_away")
        if away
        else ("Something broke on our side. The fault is in the log under this answer's X-Request-Id.", "server_error", "internal")
    )
    message, kind, code = told
    if openai:
        return {"message": message, "type": "server_error", "param": None, "code": code}
    return {"message": message, "type": kind, "param": None, "code": code, "problems": []}
