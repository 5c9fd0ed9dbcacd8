"""Who asks for chats in tests, and what they look at afterwards."""

from __future__ import annotations

import json
from typing import Any

from asgiref.sync import sync_to_async
from django.test import AsyncClient

from portal.billing.models import Entry
from portal.openai.models import Chat

HELLO = [{"role": "user", "content": "6*7="}]


class Caller:
    """An asynchronous client with a bearer token; Django's own forgets the header between the test and ASGI."""

    def __init__(self, token: str):
        self._client, self._headers = AsyncClient(), {"Authorization": f"Bearer {token}"}

    async def post(self, path: str, body: Any) -> Any:
        return await self._client.post(path, body, content_type="application/json", headers=self._headers)

    async def get(self, path: str) -> Any:
        return await self._client.get(path, headers=self._headers)


async def post(client: Caller, **body: Any) -> Any:
    """The answer to a chat."""
    return await client.post("/v1/chat/completions", {"model": "tiny-math", "messages": HELLO, **body})


async def events(answer: Any, last: str = "[DONE]") -> list[dict[str, Any]]:
    """Of a stream that ends with ``last``, which is left out; "": with an event like the others."""
    text = b"".join([part async for part in answer.streaming_content]).decode()
    parts = [part.removeprefix("data: ") for part in text.strip().split("\n\n")]
    if last:
        assert parts.pop() == last
    return [json.loads(part) for part in parts]


def bill(chat: Chat) -> dict[str, tuple[int, int]]:
    """Kind → (tokens, what they cost)."""
    entries = Entry.objects.filter(source_type="chat", step=chat.pk)
    return {entry.kind: (entry.quantity, -entry.amount_micros) for entry in entries}


async def in_thread(act: Any, *args: Any) -> Any:
    return await sync_to_async(act)(*args)
