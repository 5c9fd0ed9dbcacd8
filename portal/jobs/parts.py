"""Look, beside an engine's stream of events, which of its parts do not serve: the manager that writes the stream goes on without them.

A sampler that is lost is loaded anew, which takes minutes for a large model; the stream says of that only that a rollout began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from asgiref.sync import sync_to_async

from portal.gateway import AsyncGateway, EngineDown
from portal.jobs import reach

log = structlog.get_logger(__name__)

EVERY_SECONDS = 2.0


class BadHealth(Exception):
    """The engine's answer about itself breaks the contract."""


def parse(health: dict[str, Any]) -> dict[str, datetime] | None:
    """{part: since when} of which none serves; None where the answer does not tell, as while the manager restarts. Raises ``BadHealth``."""
    if health.get("ok") is True:
        return {}
    if (stopped := health.get("stopped")) is None:
        return None
    try:
        found = {part: datetime.fromisoformat(stopped[part]) for part in reach.PARTS if part in stopped}
    except (TypeError, ValueError) as error:
        raise BadHealth(f"an answer that tells of no parts: {error}") from error
    if any(since.tzinfo is None for since in found.values()):
        raise BadHealth("a time without its zone")
    return found


@dataclass(kw_only=True)
class PartsWatch:
    """``announce_reach()`` is awaited when a part was lost or is back, and may not raise. ``pause`` waits for so many seconds."""

    gateway: AsyncGateway
    name: str = ""  # of the engine that ``gateway`` leads to
    announce_reach: Callable[[], Awaitable[None]]
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep
    _met: frozenset[str] = field(default=frozenset(), init=False)  # the parts that were out at the last look
    _told: frozenset[str] | None = field(default=None, init=False)  # None: only an earlier process may have told anything

    async def run(self) -> None:
        """For ever, until cancelled."""
        while True:
            await self.look()
            await self.pause(EVERY_SECONDS)

    async def look(self) -> None:
        """One look. What gives no answer is left to who reads the stream; what was said of parts last is then soon said by nobody."""
        try:
            out = parse(await self.gateway.health())
        except EngineDown:
            return
        except BadHealth as error:
            log.warning("bad_health", engine=self.name, reason=str(error))
            return
        if out is not None:
            await self._tell(out)

    async def _tell(self, out: dict[str, datetime]) -> None:
        """A part that is out at one look only was handed over to a new manager: it is told of from the second on."""
        lasting = {part: since for part, since in out.items() if part in self._met}
        self._met = frozenset(out)
        told, self._told = self._told, frozenset(lasting)
        if lasting or told != self._told:
            await sync_to_async(reach.tell_parts)(self.name, lasting)
        if self._told != (told or frozenset()):
            await self.announce_reach()
