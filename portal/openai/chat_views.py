"""``POST /v1/chat/completions``. Access, credit and the engine's first line come before the first byte, so a refusal is a status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from asgiref.sync import async_to_sync
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from portal import gateway
from portal.openai import chat_request, completion, errors
from portal.openai.base import View, seconds
from portal.openai.chats import Answer, Asked, ask
from portal.openai.streams import Reading, settled


class ChatCompletions(View):
    noun = "jobs"

    def post(self, request: Request) -> HttpResponse:
        asked = ask(self.tenant, request.user, chat_request.parse(request.data), timezone.now())
        if not asked.request.stream:
            return Response(async_to_sync(whole)(asked))
        return async_to_sync(streamed)(asked)


async def whole(asked: Asked) -> dict[str, Any]:
    """The completion. Raises ``gateway.EngineDown``, ``gateway.EngineRefused``. Cancelled, its client has left."""
    answer, left = Answer(asked), False
    try:
        async with answer:
            lines = [line async for line in answer.lines()]
        if lines[-1]["type"] == "error":
            raise gateway.EngineDown(lines[-1]["message"])
        return shape_of(asked).whole(lines)
    except asyncio.CancelledError:
        left = True
        raise
    finally:
        await settled(asked, answer.spent, left=left)


async def streamed(asked: Asked) -> StreamingHttpResponse:
    """Server-sent events. Raises as ``whole`` does, before anything is sent."""
    answer = Answer(asked)
    try:
        await answer.__aenter__()
    except BaseException:
        await settled(asked, answer.spent)
        raise
    response = StreamingHttpResponse(_Events(asked, Reading(asked, answer)), content_type="text/event-stream")
    response["Cache-Control"], response["X-Accel-Buffering"] = "no-store", "no"
    return response


class _Events:
    """The events for ASGI. Django calls ``close``, in a thread, when the client has them all or has left, also one that never began."""

    def __init__(self, asked: Asked, reading: Reading):
        self._asked, self._reading, self._loop = asked, reading, asyncio.get_running_loop()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _events(self._asked, self._reading)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._reading.leave)


async def _events(asked: Asked, reading: Reading) -> AsyncGenerator[bytes, None]:
    shape = shape_of(asked)
    try:
        async for line in reading.lines():
            for chunk in shape.chunks(line):
                yield _event(chunk)
            if line["type"] == "usage" and asked.request.include_usage:
                yield _event(shape.usage_chunk(completion.usage(line)))
            if line["type"] == "error":
                yield _event({"error": errors.body(503, line["message"], code=line["code"])})
        yield b"data: [DONE]\n\n"
    except gateway.EngineDown as error:
        yield _event({"error": errors.body(503, f"The engine's answer broke off: {error}", code="engine_down")})
    finally:
        reading.leave()


def shape_of(asked: Asked) -> completion.Shape:
    wants = asked.request.order["top_logprobs"] is not None
    return completion.Shape(asked.chat.public_id, asked.model, seconds(asked.chat.created_at) or 0, n=asked.request.n, logprobs=wants)


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode(errors="replace") + b"\n\n"
