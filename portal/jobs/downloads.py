"""An adapter on its way from the engine to a person: streamed through, never held whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, StreamingHttpResponse

from portal import gateway
from portal.jobs import engines
from portal.jobs.models import Job

CHUNK_BYTES = 64 * 1024


def adapter_response(request: HttpRequest, job: Job, version: str) -> StreamingHttpResponse:
    """The archive of ``version`` (a number or "latest"). Raises ``Http404`` when there is none, ``gateway.EngineDown``.

    The caller has looked the job up in its tenant.
    """
    stack = ExitStack()
    try:
        answer = stack.enter_context(engines.of(job).adapter(job.public_id, version))
    except gateway.EngineRefused as refused:
        raise Http404(str(refused)) from refused
    chunks = answer.iter_bytes(CHUNK_BYTES)
    # Under ASGI Django would first collect an ordinary iterator whole.
    body = _Later(chunks, stack) if isinstance(request, ASGIRequest) else _now(chunks, stack)
    response = StreamingHttpResponse(body, content_type="application/zip")
    served = answer.headers.get("X-Policy-Version", version)
    response["X-Policy-Version"] = served
    response["Content-Disposition"] = f'attachment; filename="{job.public_id}-v{served}.zip"'
    if "Content-Length" in answer.headers and "Content-Encoding" not in answer.headers:
        response["Content-Length"] = answer.headers["Content-Length"]
    return response


def _now(chunks: Iterator[bytes], stack: ExitStack) -> Iterator[bytes]:
    with stack:
        yield from chunks


class _Later:
    """The chunks for ASGI, each read in a thread. Django calls ``close`` when the client has it all or has left."""

    def __init__(self, chunks: Iterator[bytes], stack: ExitStack):
        self._chunks, self.close = chunks, stack.close

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await sync_to_async(next, thread_sensitive=False)(self._chunks, None)) is not None:
            yield chunk
