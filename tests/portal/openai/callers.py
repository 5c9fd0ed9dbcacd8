from __future__ import annotations

from typing import Any

from django.test import AsyncClient


class Caller:
    """An asynchronous client with a bearer token; Django's own forgets the header between the test and ASGI."""

    def __init__(self, token: str):
        self._client, self._headers = AsyncClient(), {"Authorization": f"Bearer {token}"}

    async def post(self, path: str, body: Any) -> Any:
        return await self._client.post(path, body, content_type="application/json", headers=self._headers)

    async def get(self, path: str) -> Any:
        return await self._client.get(path, headers=self._headers)
