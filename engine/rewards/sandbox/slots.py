"""How many worker processes there may be at once, and whose idle one ends when somebody else needs its place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.rewards.sandbox.nursery import Nursery
from engine.rewards.sandbox.worker import Worker


class Slots:
    """``take`` and ``give_back`` in pairs. ``evict``: ends somebody's idle worker, if there is one, and gives its place back."""

    def __init__(self, nursery: Nursery, *, limit: int, evict: Callable[[], Awaitable[None]]):
        self._nursery, self._evict = nursery, evict
        self._places = asyncio.Semaphore(limit)
        self._waiting = 0

    @property
    def wanted(self) -> bool:
        """Whether somebody waits: then an owner who is done with his worker ends it."""
        return self._waiting > 0

    async def take(self) -> Worker:
        """A fresh worker, as soon as there is a place for it. Raises ``CannotSpawn``."""
        self._waiting += 1
        try:
            if self._places.locked():
                await self._evict()
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._nursery.take()
        except BaseException:
            self.give_back()
            raise

    def give_back(self) -> None:
        self._places.release()
