"""Search at a MediaWiki-compatible endpoint (``action=query&list=search``), as Wikipedia and its kin offer it at ``…/w/api.php``.

Endpoints are the operator's own choice, so their addresses are not checked; redirects are not followed all the same. Everything ends at
the caller's deadline; what may be better a moment later (no connection, 429, 5xx) is tried once more within it.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from engine.almanac import Article
from engine.rollout.tools import BAD_ANSWER, UNAVAILABLE, ToolFailed

TRIES = 2
PAUSE_SECONDS = 0.2
MAX_CONNECTIONS = 64
MAX_ANSWER_BYTES = 2**20
_TAG = re.compile(r"<[^>]*>")
_HEADERS = {"User-Agent": "marlaas (search tool)", "Accept": "application/json"}


class Wiki:
    """One endpoint. ``url``: of its ``api.php``."""

    def __init__(
        self, url: str, *, transport: httpx.AsyncBaseTransport | None = None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ):
        self._url, self._sleep = url, sleep
        self._http = httpx.AsyncClient(
            headers=_HEADERS,
            timeout=None,  # the caller's deadline
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
            transport=transport,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def search(self, words: str, *, results: int) -> list[Article]:
        """The endpoint's first ``results`` hits. Raises ``ToolFailed``; has no deadline of its own."""
        for attempt in range(1, TRIES + 1):
            try:
                return _articles(await self._ask(words, results))[:results]
            except _Passing as error:
                if attempt == TRIES:
                    raise ToolFailed(UNAVAILABLE, f"the search is not available: {error}") from error
            await self._sleep(PAUSE_SECONDS)
        raise AssertionError("the last try returns or raises")

    async def _ask(self, words: str, results: int) -> Any:
        query = {"action": "query", "list": "search", "srsearch": words, "srlimit": str(results), "srprop": "snippet", "format": "json"}
        try:
            async with self._http.stream("GET", self._url, params=query) as response:
                _check_status(response.status_code)
                body = await _read(response)
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _Passing(type(error).__name__) from error
        try:
            return httpx.Response(200, content=body).json()
        except (ValueError, RecursionError):
            raise ToolFailed(BAD_ANSWER, "the search answered with something else than JSON") from None


class _Passing(Exception):
    """A failure that may be over in a moment."""


def _check_status(status: int) -> None:
    if status == 429 or status >= 500:
        raise _Passing(f"status {status}")
    if status != 200:
        raise ToolFailed(UNAVAILABLE, f"the search is not available: status {status}")


async def _read(response: httpx.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise ToolFailed(BAD_ANSWER, "the search answered with too much")
    return bytes(body)


def _articles(answer: Any) -> list[Article]:
    try:
        if "error" in answer:
            raise ToolFailed(UNAVAILABLE, f"the search refused: {str(answer['error'].get('info', ''))[:200]}")
        return [Article(title=str(hit["title"]), text=_plain(str(hit.get("snippet", "")))) for hit in answer["query"]["search"]]
    except (KeyError, TypeError, AttributeError):
        raise ToolFailed(BAD_ANSWER, "the search answered in a shape of its own") from None


def _plain(snippet: str) -> str:
    """A snippet without the tags that mark its hits."""
    return " ".join(html.unescape(_TAG.sub("", snippet)).split())
