"""What the engine's parts are doing before they can work: the text behind ``GET /healthz`` and the launcher's progress lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


class StartFailed(RuntimeError):
    """The engine cannot start; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """``revision`` grows with every change. ``failure``: a part could not start, and will hardly do so by itself."""

    ok: bool
    stage: str
    revision: int
    failure: str | None = None


def _now() -> datetime:
    return datetime.now(UTC)


class Readiness:
    """Every part is named at the start with its first stage; ``None`` as a stage says that it is ready. ``clock`` gives now."""

    def __init__(self, stages: dict[str, str | None], *, clock: Callable[[], datetime] = _now):
        self._stages = dict(stages)
        self._clock = clock
        self._since = dict.fromkeys(self._stages, clock())  # of a part that is not ready: since when
        self._failures: dict[str, str] = {}
        self._revision = 1
        self._changed = asyncio.Event()

    def set(self, part: str, stage: str | None, *, failure: str | None = None) -> None:
        before = (self._stages.get(part), self._failures.get(part))
        if before[0] is None:
            self._since[part] = self._clock()
        self._stages[part] = stage
        if failure:
            self._failures[part] = failure
        else:
            self._failures.pop(part, None)
        if before != (stage, failure):
            self._revision += 1
            self._changed.set()
            self._changed = asyncio.Event()

    def health(self) -> Health:
        stage = "; ".join(text for text in self._stages.values() if text)
        failure = "; ".join(self._failures.values()) or None
        return Health(ok=not stage, stage=stage, revision=self._revision, failure=failure)

    def stopped(self) -> dict[str, datetime]:
        """{kind of part: since when} where none of that kind is ready; ``trainer 2`` is one of the kind ``trainer``."""
        kinds: dict[str, list[str]] = {}
        for part in self._stages:
            kinds.setdefault(part.split(" ")[0], []).append(part)
        stopped = {kind: parts for kind, parts in kinds.items() if all(self._stages[part] for part in parts)}
        return {kind: max(self._since[part] for part in parts) for kind, parts in stopped.items()}

    async def next(self, after: int, *, wait_seconds: float) -> Health:
        """The state once its revision has passed ``after``, or as it is when ``wait_seconds`` are over."""
        try:
            async with asyncio.timeout(wait_seconds):
                while self._revision <= after:
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.health()
