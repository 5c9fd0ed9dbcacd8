"""Is this web process fit to serve? It is when its database answers; the engine may be down, pages say so themselves."""

from __future__ import annotations

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse


def healthz(request: HttpRequest) -> JsonResponse:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return JsonResponse({"ok": False, "stage": f"the database does not answer: {type(error).__name__}"}, status=503)
    return JsonResponse({"ok": True})
