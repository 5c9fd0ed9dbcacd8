"""What chat may have of the sampler at once, so that it never holds up rollouts: few completions, few tokens of KV cache, one adapter.

ChatRoom ── seats and tokens, given in order of arrival
ChatSlot ── the one place in the sampler's adapter table that is chat's: kept by the last adapter until another is wanted
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from engine.ports import AdapterRef, PortError, Snapshot


class Loader(Protocol):
    async def load(self, ref: AdapterRef, files: Snapshot) -> AdapterRef: ...
    async def unload(self, job: str, *, keep_version: int | None = None) -> None: ...


class _Line:
    """Those who wait, in order of arrival; only the first may look whether there is a place."""

    def __init__(self) -> None:
        self._waiting: deque[object] = deque()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def turn(self, free: Callable[[], bool]) -> AsyncIterator[None]:
        """Inside, the caller is first and ``free()`` was true; nobody else enters until it leaves."""
        ticket = object()
        self._waiting.append(ticket)
        try:
            while self._waiting[0] is not ticket or not free():
                await self._changed.wait()
            yield
        finally:
            self._waiting.remove(ticket)
            self.wake()


class ChatRoom:
    """``seats`` completions at once, which may take ``tokens`` of context together."""

    def __init__(self, *, seats: int, tokens: int):
        self._seats, self._tokens, self._most = seats, tokens, tokens
        self._line = _Line()

    @asynccontextmanager
    async def take(self, tokens: int) -> AsyncIterator[None]:
        """A seat for a completion of so many tokens, its prompt with it. One that is larger than the room has it alone."""
        tokens = min(tokens, self._most)
        async with self._line.turn(lambda: self._seats > 0 and self._tokens >= tokens):
            self._seats, self._tokens = self._seats - 1, self._tokens - tokens
        try:
            yield
        finally:
            self._seats, self._tokens = self._seats + 1, self._tokens + tokens
            self._line.wake()


class ChatSlot:
    """Adapters of chats are loaded under names of their own: a rollout shares no KV cache with them, and its unload leaves them alone."""

    def __init__(self, sampler: Loader):
        self._sampler = sampler
        self._held: AdapterRef | None = None
        self._users = 0
        self._line = _Line()
        self._swap: asyncio.Task[AdapterRef] | None = None

    def holds(self, ref: AdapterRef) -> bool:
        """Whether ``use`` would give it at once, without its files."""
        return not len(self._line) and self._is(ref)

    @asynccontextmanager
    async def use(self, ref: AdapterRef, files: Snapshot | None) -> AsyncIterator[AdapterRef]:
        """``ref``, loaded, until the block ends. Raises ``PortError``, also where it must be loaded and ``files`` is None."""
        async with self._line.turn(lambda: self._is(ref) or not self._users):
            held = self._held if self._is(ref) else await self._swapped(ref, files)
            self._users += 1
        try:
            yield held
        finally:
            self._users -= 1
            self._line.wake()

    def forget(self, job: str) -> None:
        """The sampler drops the adapters of ``job``; who uses one now goes on."""
        if self._held is not None and self._held.job == job:
            self._held = None

    def _is(self, ref: AdapterRef) -> bool:
        held = self._held
        return held is not None and (held.tenant, held.job, held.version) == (ref.tenant, ref.job, ref.version)

    async def _swapped(self, ref: AdapterRef, files: Snapshot | None) -> AdapterRef:
        if self._swap is not None:  # whoever began it has left
            await asyncio.wait([self._swap])
            if self._is(ref):
                return self._held
        if files is None:
            raise PortError(f"{ref.name} has just left the sampler; ask again")
        # In a task of its own: a load that is cut off would leave an adapter that nobody knows of.
        self._swap = asyncio.create_task(self._load(ref, files))
        return await asyncio.shield(self._swap)

    async def _load(self, ref: AdapterRef, files: Snapshot) -> AdapterRef:
        old, self._held = self._held, None
        if old is not None:
            await self._sampler.unload(old.job)
        self._held = await self._sampler.load(ref, files)
        return self._held
