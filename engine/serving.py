"""Chats as the HTTP door serves them: whose version it is, the manager says once; the tokens come straight from a sampler.

begin(order) ─▶ manager: which version (and its files, where the sampler does not hold it) ─▶ sampler: lines until the chat is over
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Protocol

from engine.chat_spec import ChatOrder
from engine.errors import Conflict, EngineError, Invalid, NotReady
from engine.ports import PortError, Snapshot, TooMany

Line = dict[str, Any]


class VersionSource(Protocol):
    async def servable(self, tenant: str, job: str, version: int | None) -> int: ...
    async def adapter(self, job: str, version: int | None) -> tuple[int, Snapshot]: ...


class Replica(Protocol):
    """One sampler; see ``rollout.chat.ChatDesk``. Raises ``PortError``."""

    async def open(self, chat: str, order: dict[str, Any], version: int | None, files: Snapshot | None) -> bool: ...
    async def read(self, chat: str) -> dict[str, Any]: ...
    async def close(self, chat: str) -> None: ...


class Chat:
    """A chat that has begun. ``version``: None for the base model."""

    def __init__(self, name: str, replica: Replica, version: int | None, first: list[Line], over: bool):
        self.name, self.version = name, version
        self._replica, self._first, self._over = replica, first, over

    async def lines(self) -> AsyncIterator[list[Line]]:
        """What came since the last look; whatever goes wrong is the last line."""
        yield self._first
        while not self._over:
            try:
                page = await self._replica.read(self.name)
            except PortError as error:
                yield [{"type": "error", "code": "failed", "message": error.reason}]
                return
            self._over = page["over"]
            if page["lines"]:
                yield page["lines"]

    async def close(self) -> None:
        """What still runs of it ends; a sampler that is gone has nothing to end."""
        with suppress(PortError):
            await self._replica.close(self.name)


class Serving:
    """``replica_for``: the sampler that shall serve an adapter, by its name (or the base model, ""). A chat stays where it began."""

    def __init__(self, manager: VersionSource, replica_for: Callable[[str], Replica], new_name: Callable[[], str] | None = None):
        self._manager, self._replica_for = manager, replica_for
        self._new_name = new_name or (lambda: secrets.token_hex(8))

    async def begin(self, order: ChatOrder) -> Chat:
        """Answers when its first line is there. Raises ``EngineError``: unknown version, long prompt, too many chats, no place in time."""
        version = None if order.job is None else await self._manager.servable(order.tenant, order.job, order.version)
        name, replica = self._new_name(), self._replica_for("" if version is None else f"{order.job}@{version}")
        try:
            await self._open(replica, name, order, version)
            first = await self._first(replica, name)
        except PortError as error:
            raise _refusal(error) from error
        except BaseException:  # the caller has left meanwhile
            await Chat(name, replica, version, [], over=True).close()
            raise
        if (line := first["lines"][0])["type"] == "error":
            raise _of_line(line)
        return Chat(name, replica, version, first["lines"], first["over"])

    async def _open(self, replica: Replica, name: str, order: ChatOrder, version: int | None) -> None:
        told = order.model_dump(mode="json")
        if not await replica.open(name, told, version, None):
            _, files = await self._manager.adapter(order.job, version)
            await replica.open(name, told, version, files)

    async def _first(self, replica: Replica, name: str) -> dict[str, Any]:
        while not (page := await replica.read(name))["lines"]:
            pass
        return page


def _of_line(line: Line) -> EngineError:
    if line["code"] == "refused":
        return Invalid(line["message"], code="refused")
    return NotReady(line["message"], code=line["code"])


def _refusal(error: PortError) -> EngineError:
    if isinstance(error, TooMany):
        return Conflict(error.reason, code="chats_busy")
    if error.attribution == "user":
        return Invalid.of([("messages", error.reason)])
    return NotReady(error.reason, code="sampler")
