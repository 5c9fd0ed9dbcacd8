"""The journal as the manager's event loop uses it: group commit on the way in, event-driven long polls on the way out.

``post`` takes an event's place in the order at once; one flusher writes whatever has gathered while the last fsync ran. Readers see
an event only once it is durable: stored first, announced after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from engine.events import Event
from engine.journal import Draft, Journal


def _nobody(error: BaseException) -> None:
    """Without a listener a failed write still raises from the next ``post``."""


class EventLog:
    """Belongs to one event loop. After the first failed write every ``post`` and ``append`` raises the same error: the manager must go."""

    def __init__(self, journal: Journal, *, on_failure: Callable[[BaseException], None] = _nobody):
        self.journal = journal
        self._on_failure = on_failure
        self._gathered: list[tuple[Draft, asyncio.Future[Event]]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self._error: BaseException | None = None

    def post(self, job: str, kind: str, data: dict[str, Any], *, at: datetime) -> asyncio.Future[Event]:
        """Queue an event behind all earlier ones; the future holds it, numbered, once it is durable."""
        if self._error is not None:
            raise self._error
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieve)
        self._gathered.append((Draft(job=job, kind=kind, at=at, data=data), future))
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush())
        return future

    async def append(self, job: str, kind: str, data: dict[str, Any], *, at: datetime) -> Event:
        """``post``, and wait until it is durable."""
        return await asyncio.shield(self.post(job, kind, data, at=at))

    async def drain(self) -> None:
        """Wait until everything posted so far is durable."""
        if self._flusher is not None:
            await asyncio.shield(self._flusher)

    async def read_after(self, offset: int, *, wait_seconds: float, limit: int, gather_seconds: float = 0.0) -> list[Event]:
        """Up to ``limit`` events after ``offset``; when there are none yet, waits for the first at most ``wait_seconds``.

        A reader that waited for the first is given those of the next ``gather_seconds`` with it.
        """
        try:
            async with asyncio.timeout(wait_seconds):
                waits = self.journal.last <= offset
                while self.journal.last <= offset:
                    await self._arrived.wait()
                if waits:
                    await asyncio.sleep(gather_seconds)
        except TimeoutError:
            pass
        return await asyncio.to_thread(self.journal.read_after, offset, limit)

    async def _flush(self) -> None:
        try:
            while self._gathered:
                batch, self._gathered = self._gathered, []
                await self._write(batch)
        finally:
            self._flusher = None

    async def _write(self, batch: list[tuple[Draft, asyncio.Future[Event]]]) -> None:
        try:
            events = await asyncio.to_thread(self.journal.append, [draft for draft, _ in batch])
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever it is, what these events say may not be on disk: hand it to everyone who waits
            self._fail(error, [*batch, *self._gathered])
            return
        for (_, future), event in zip(batch, events, strict=True):
            if not future.done():  # who waited for it may have been cancelled meanwhile; the event stands
                future.set_result(event)
        # Wake who waits now; who comes later compares offsets first.
        self._arrived.set()
        self._arrived = asyncio.Event()

    def _fail(self, error: BaseException, waiting: list[tuple[Draft, asyncio.Future[Event]]]) -> None:
        self._error = error
        self._gathered = []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
        self._on_failure(error)


def _retrieve(future: asyncio.Future[Event]) -> None:
    """A posted event's failure is raised by the next ``post``; asyncio need not also warn that nobody asked this future."""
    if not future.cancelled():
        future.exception()
