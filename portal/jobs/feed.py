"""One read for all watchers of a job who stand at the same number, instead of one each: two hundred pages wake at the same moment.

A caller gets an answer whose query began after the call; an older one might lack the very row that woke him.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

import msgspec

Rows = list[dict[str, Any]]


class _Read:
    """The latest read at one (job, number). Lives as long as somebody waits for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.began = -1
        self.message: str | None = None
        self.last = 0


class Feed:
    """``fetch(job key, number)`` gives the next rows. One per event loop."""

    def __init__(self, fetch: Callable[[int, int], Awaitable[Rows]]):
        self._fetch = fetch
        self._moments = itertools.count()
        self._reads: WeakValueDictionary[tuple[int, int], _Read] = WeakValueDictionary()

    async def after(self, job: int, seq: int) -> tuple[str, int] | None:
        """(the message for the socket, its last number), or None when nothing comes after ``seq`` yet."""
        came = next(self._moments)
        read = self._reads.get((job, seq))
        if read is None:
            read = self._reads[job, seq] = _Read()
        async with read.lock:
            if read.began < came:
                read.began = next(self._moments)
                _fill(read, await self._fetch(job, seq))
            return (read.message, read.last) if read.message is not None else None


def _fill(read: _Read, rows: Rows) -> None:
    read.last = rows[-1]["seq"] if rows else 0
    read.message = msgspec.json.encode({"type": "events", "events": rows, "last": read.last}).decode() if rows else None
