"""The samplers as chats reach them: from the HTTP actor straight to a rollout actor, past the manager."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from engine.ports import Snapshot
from engine.runtime.calls import answer

REMEMBERED = 1024
READ_GRACE_SECONDS = 30.0


class ChatReplica:
    """One rollout actor. ``call_seconds`` bounds each call; a read waits for a line meanwhile."""

    def __init__(self, index: int, handle: Any, *, call_seconds: float):
        self._handle, self._seconds, self._what = handle, call_seconds, f"sampler {index}: chat"

    async def open(self, chat: str, order: dict[str, Any], version: int | None, files: Snapshot | None) -> bool:
        ref = self._handle.chat_open.remote(chat, order, version, files)
        return await answer(ref, deadline_seconds=self._seconds, what=self._what)

    async def read(self, chat: str) -> dict[str, Any]:
        return await answer(self._handle.chat_read.remote(chat), deadline_seconds=self._seconds + READ_GRACE_SECONDS, what=self._what)

    async def close(self, chat: str) -> None:
        await answer(self._handle.chat_close.remote(chat), deadline_seconds=self._seconds, what=self._what)


class ChatReplicas:
    """Which replica serves which adapter: the one that served it last, since it holds it; new ones go round."""

    def __init__(self, replicas: list[ChatReplica]):
        self._replicas = replicas
        self._served: OrderedDict[str, int] = OrderedDict()
        self._next = 0

    def of(self, adapter: str) -> ChatReplica:
        """``adapter`` "": the base model, which every replica has."""
        index = self._served.get(adapter) if adapter else None
        if index is None:
            index = self._next
            self._next = (self._next + 1) % len(self._replicas)
        if adapter:
            self._served[adapter] = index
            self._served.move_to_end(adapter)
            if len(self._served) > REMEMBERED:
                self._served.popitem(last=False)
        return self._replicas[index]
