"""A streamed answer. The engine's lines are read as they come, whether the client reads or not, and billed when they end:

    engine ──▶ Reading, a task: counts each line, settles the chat ──▶ the client, at its own pace or not at all

So who stalls, leaves or never begins to read is billed once for what was sampled, while what it may cost is still held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from channels.db import database_sync_to_async

from portal import gateway
from portal.openai.chats import Answer, Asked, Spent, settled_now

MAX_UNREAD = 100_000  # tokens and their alternatives, in memory for a client that does not read
_settle = database_sync_to_async(settled_now, thread_sensitive=False)
_under_way: set[asyncio.Task[None]] = set()


class Reading:
    """Of an answer that has begun, from now until it ends."""

    def __init__(self, asked: Asked, answer: Answer):
        self._asked, self._answer = asked, answer
        self._lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._unread = 0
        self._broken: gateway.EngineDown | None = None
        self._begun = self._left = self._over = False
        self._task = _kept(self._read())

    async def lines(self) -> AsyncIterator[dict[str, Any]]:
        """All, at the caller's pace; the chat is settled when they end. Raises ``gateway.EngineDown`` where the stream breaks off."""
        while (line := await self._lines.get()) is not None:
            self._unread -= _weight(line)
            yield line
        if self._broken is not None:
            raise self._broken
        await self._task

    def leave(self) -> None:
        """The client wants no more of it: what has not been sampled is not. After the end it is nothing."""
        if self._over:
            return
        self._left = True
        if self._begun:  # a task that is cancelled before its first line never runs it, and would bill nothing
            self._task.cancel()

    async def _read(self) -> None:
        self._begun = True
        try:
            if not self._left:
                await self._take_all()
        except gateway.EngineDown as error:
            self._broken = error
        finally:
            self._over = True
            try:
                await self._answer.__aexit__()
                await settled(self._asked, self._answer.spent, left=self._left)
            finally:
                self._lines.put_nowait(None)

    async def _take_all(self) -> None:
        async for line in self._answer.lines():
            self._unread += _weight(line)
            if self._unread > MAX_UNREAD:
                self._left = True
                raise gateway.EngineDown("its client did not read it")
            self._lines.put_nowait(line)


async def settled(asked: Asked, spent: Spent, *, left: bool = False) -> None:
    """In a task of its own, so that a client that leaves at this moment does not take the bill along."""
    await asyncio.shield(_kept(_settle(asked.chat, spent, left=left)))


def _kept(work: Any) -> asyncio.Task[None]:
    """Its task; the loop alone would forget one that nobody waits for."""
    task = asyncio.create_task(work)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return task


def _weight(line: dict[str, Any]) -> int:
    return 1 + sum(1 + len(token["top"]) for token in line.get("logprobs", ())) + line.get("tokens", 0)
