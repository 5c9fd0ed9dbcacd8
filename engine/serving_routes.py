"""``POST /generate``: an answer as lines of JSON, as it is sampled. It ends with its client: whoever goes away wants no more tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from engine.chat_spec import ChatOrder
from engine.grading_routes import while_there
from engine.serving import Chat, Serving

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
MEDIA_TYPE = "application/x-ndjson"


def serving_routes(serving: Serving) -> APIRouter:
    routes = APIRouter(tags=["chat"])

    @routes.post("/generate", response_class=Response, summary="Completions of a chat, streamed as lines of JSON")
    async def generate(order: ChatOrder, request: Request) -> Response:
        return LinesOf(await while_there(request, serving.begin(order)))

    return routes


class LinesOf(Response):
    """A chat's lines; the chat is closed when the client has them all or has left."""

    media_type = MEDIA_TYPE

    def __init__(self, chat: Chat):
        super().__init__(media_type=MEDIA_TYPE)
        self._chat = chat
        del self.headers["content-length"]
        if chat.version is not None:
            self.headers["X-Policy-Version"] = str(chat.version)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending, leaving = asyncio.ensure_future(self._send(send)), asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._chat.close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for lines in self._chat.lines():
            body = b"".join(json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n" for line in lines)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
