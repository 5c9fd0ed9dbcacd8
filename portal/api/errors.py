"""One error shape for the whole API: ``{"error": {"message", "type", "param", "code", "problems"}}``."""

from __future__ import annotations

from typing import Any

import structlog
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import resolve
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from portal.errors import Conflict, Invalid
from portal.gateway import EngineDown, EngineRefused
from tenants.access import Forbidden, Refused

log = structlog.get_logger(__name__)

_TYPES = {
    400: "invalid_request",
    401: "authentication",
    403: "permission",
    404: "not_found",
    409: "conflict",
    429: "rate_limit",
    503: "engine_unavailable",
}


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler. Anything unknown is left to Django, which logs it and answers 500."""
    known = _known(error)
    if known is None:
        return None
    set_rollback()
    status, body, headers = known
    return Response({"error": body}, status=status, headers=headers)


def body(
    status: int, message: str, *, code: str, param: str | None = None, problems: list[tuple[str, str]] | None = None
) -> dict[str, Any]:
    listed = [{"field": field, "message": text} for field, text in problems or []]
    return {"message": message, "type": _TYPES.get(status, "invalid_request"), "param": param, "code": code, "problems": listed}


@csrf_exempt  # DRF's views, which it may pass on to, check for themselves
def not_found(request: HttpRequest) -> HttpResponseBase:
    """For paths below /api/ that no view has.

    One that lacks only the last slash is answered as if it had it: a redirect would drop a body.
    """
    if not request.path_info.endswith("/"):
        match = resolve(f"{request.path_info}/")
        if match.func is not not_found:
            return match.func(request, *match.args, **match.kwargs)
    return JsonResponse({"error": body(404, "There is nothing here.", code="not_found")}, status=404)


def _known(error: Exception) -> tuple[int, dict[str, Any], dict[str, str]] | None:
    if isinstance(error, Invalid):
        status = 409 if isinstance(error, Conflict) else 400
        return status, _of_problems(status, error.problems, error.code), {}
    if isinstance(error, Refused):
        return 400, _of_problems(400, [(error.field, str(error))], "invalid"), {}
    if isinstance(error, Http404):
        return 404, body(404, "There is nothing here.", code="not_found"), {}
    if isinstance(error, (Forbidden, PermissionDenied)):
        return 403, body(403, str(error) or "You may not do this.", code=getattr(error, "code", "forbidden")), {}
    if isinstance(error, EngineRefused):
        status = error.status if error.status in (404, 409) else 400
        return status, body(status, str(error), code="engine_refused", problems=error.problems), {}
    if isinstance(error, EngineDown):
        log.warning("api_engine_down", reason=str(error))
        return 503, body(503, "The engine does not answer at the moment; try again shortly.", code="engine_down"), {"Retry-After": "5"}
    if isinstance(error, exceptions.APIException):
        return _of_drf(error)
    return None


def _of_problems(status: int, problems: list[tuple[str, str]], code: str) -> dict[str, Any]:
    field, message = problems[0]
    return body(status, f"{field}: {message}", code=code, param=field, problems=problems)


def _of_drf(error: exceptions.APIException) -> tuple[int, dict[str, Any], dict[str, str]]:
    status = error.status_code
    headers = {"WWW-Authenticate": error.auth_header} if getattr(error, "auth_header", None) else {}
    if isinstance(error, exceptions.Throttled):
        headers["Retry-After"] = str(int(error.wait or 1))
    if isinstance(error, exceptions.ValidationError):
        return status, _of_problems(status, list(_flat(error.detail)), "invalid"), headers
    code = error.get_codes() if isinstance(error.get_codes(), str) else "error"
    return status, body(status, str(error.detail), code=code), headers


def _flat(detail: Any, path: str = "") -> Any:
    """(field path, message) of DRF's nested lists and dicts."""
    if isinstance(detail, dict):
        for key, inner in detail.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(detail, list):
        for inner in detail:
            yield from _flat(inner, path)
    else:
        yield path or "body", str(detail)
