"""Keeps a dead manager's late calls out: only the newest epoch is served, and what older ones started is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from engine.ports import PortError


class Superseded(PortError):
    """The caller is not the newest manager."""

    def __init__(self, epoch: int, newest: int):
        super().__init__(f"manager epoch {epoch} has been followed by {newest}")
        self.epoch = epoch
        self.newest = newest

    def __reduce__(self) -> tuple[Any, ...]:
        return Superseded, (self.epoch, self.newest)


class Fence:
    def __init__(self) -> None:
        self.epoch = 0
        self._running: set[asyncio.Task[Any]] = set()

    def claim(self, epoch: int) -> None:
        """Serve ``epoch`` from now on and cancel what older epochs have running. Raises ``Superseded`` for an older one."""
        if epoch < self.epoch:
            raise Superseded(epoch, self.epoch)
        if epoch > self.epoch:
            self.epoch = epoch
            for task in self._running:
                task.cancel()

    async def run(self, epoch: int, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of ``work``, unless a newer manager takes over meanwhile (``Superseded``)."""
        try:
            self.claim(epoch)
        except Superseded:
            work.close()
            raise
        task = asyncio.ensure_future(work)
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self.epoch > epoch:
                raise Superseded(epoch, self.epoch) from None
            task.cancel()
            raise
        finally:
            self._running.discard(task)
