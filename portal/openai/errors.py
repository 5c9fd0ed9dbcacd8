"""OpenAI's error shape, with the types and codes that its clients know: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework.response import Response
from rest_framework.views import set_rollback

from portal.api import errors

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
# A client of OpenAI's waits and asks again after a 409; these two will not go away by that.
_OUT_OF_MEANS = {"insufficient_credit": "insufficient_quota", "quota_exceeded": "insufficient_quota"}


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler of these views. Anything unknown is left to Django, which logs it and answers 500."""
    answer = errors.handle(error, context)
    if answer is None:
        return None
    set_rollback()
    said = answer.data["error"]
    code = _OUT_OF_MEANS.get(said["code"], said["code"])
    answer.status_code = 429 if said["code"] in _OUT_OF_MEANS else answer.status_code
    answer.data = {"error": body(answer.status_code, said["message"], code=code, param=said["param"])}
    return answer


def body(status: int, message: str, *, code: str | None, param: str | None = None) -> dict[str, Any]:
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"message": message, "type": "insufficient_quota" if code == "insufficient_quota" else kind, "param": param, "code": code}


@csrf_exempt
def not_found(request: HttpRequest, **_: str) -> JsonResponse:
    """For paths below /v1/ that there is nothing at."""
    message = f"There is nothing at {request.method} {request.path[:200]}."
    return JsonResponse({"error": body(404, message, code="not_found")}, status=404)
