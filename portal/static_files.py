"""Our static files, as ASGI wants them: of WhiteNoise Django gets an ordinary file, which it reads whole, with a warning each time."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware

from portal.streaming import body, chunks_of


class StaticFiles(WhiteNoiseMiddleware):
    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> StreamingHttpResponse:
        found = static_file.get_response(request.method, request.META)
        chunks = chunks_of(found.file) if found.file else iter(())
        answer = StreamingHttpResponse(body(request, chunks), status=int(found.status))
        del answer["Content-Type"]  # Django's guess
        for name, value in found.headers:
            answer[name] = value
        return answer
