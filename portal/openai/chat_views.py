"""``POST /v1/chat/completions``. Access, credit and the engine's first line come before the first byte, so a refusal is a status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from asgiref.sync import async_to_sync
from channels.db import database_sync_to_async
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from portal import gateway
from portal.openai import chat_request, completion, errors
from portal.openai.base import View, seconds
from portal.openai.chats import Answer, Asked, Spent, ask, settled_now

_settle = database_sync_to_async(settled_now, thread_sensitive=False)
_settling: set[asyncio.Task[None]] = set()


class ChatCompletions(View):
    noun = "jobs"

    def post(self, request: Request) -> HttpResponse:
        asked = ask(self.tenant, request.user, chat_request.parse(request.data), timezone.now())
        if not asked.request.stream:
            return Response(async_to_sync(whole)(asked))
        return async_to_sync(streamed)(asked)


async def whole(asked: Asked) -> dict[str, Any]:
    """The completion. Raises ``gateway.EngineDown``, ``gateway.EngineRefused``."""
    answer = Answer(asked)
    try:
        async with answer:
            lines = [line async for line in answer.lines()]
        if lines[-1]["type"] == "error":
            raise gateway.EngineDown(lines[-1]["message"])
        return shape_of(asked).whole(lines)
    finally:
        await _settled(asked, answer.spent)


async def streamed(asked: Asked) -> StreamingHttpResponse:
    """Server-sent events. Raises as ``whole`` does, before anything is sent."""
    answer = Answer(asked)
    try:
        await answer.__aenter__()
    except BaseException:
        await _settled(asked, answer.spent)
        raise
    response = StreamingHttpResponse(_Events(_events(asked, answer)), content_type="text/event-stream")
    response["Cache-Control"], response["X-Accel-Buffering"] = "no-store", "no"
    return response


class _Events:
    """The events for ASGI. Django calls ``close``, in a thread, when the client has them all or has left: the generator alone would end
    whenever its memory is collected.
    """

    def __init__(self, events: AsyncGenerator[bytes, None]):
        self._events, self._loop = events, asyncio.get_running_loop()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._events

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._events.aclose(), self._loop)


async def _events(asked: Asked, answer: Answer) -> AsyncGenerator[bytes, None]:
    shape, finished = shape_of(asked), False
    try:
        async for line in answer.lines():
            for chunk in shape.chunks(line):
                yield _event(chunk)
            if line["type"] == "usage" and asked.request.include_usage:
                yield _event(shape.usage_chunk(completion.usage(line)))
            if line["type"] == "error":
                yield _event({"error": errors.body(503, line["message"], code=line["code"])})
        finished = True
        yield b"data: [DONE]\n\n"
    except gateway.EngineDown as error:
        finished = True
        yield _event({"error": errors.body(503, f"The engine's answer broke off: {error}", code="engine_down")})
    finally:
        await answer.__aexit__()
        await _settled(asked, answer.spent, left=not finished)


def shape_of(asked: Asked) -> completion.Shape:
    wants = asked.request.order["top_logprobs"] is not None
    return completion.Shape(asked.chat.public_id, asked.model, seconds(asked.chat.created_at) or 0, n=asked.request.n, logprobs=wants)


async def _settled(asked: Asked, spent: Spent, *, left: bool = False) -> None:
    """In a task of its own, so that a client that leaves at this moment does not take the bill along."""
    task = asyncio.create_task(_settle(asked.chat, spent, left=left))
    _settling.add(task)
    task.add_done_callback(_settling.discard)
    await asyncio.shield(task)


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode(errors="replace") + b"\n\n"
