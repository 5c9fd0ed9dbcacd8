"""When the sampler has requests, seen without asking it: its counters lie in a small file that any process of this machine may read."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from engine.bench.intervals import Interval
from engine.rollout.counters import Counters
from engine.settings import EngineSettings

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.004


def counter_files(settings: EngineSettings) -> list[Path]:
    """Those of the replicas that live on this machine."""
    files = settings.runtime_dir.glob("adapters/*/counters-*")
    return [path for path in files if Path("/proc", path.parent.name).exists()]


class SamplerWatch:
    """Use as a context manager; ``intervals`` afterwards, in UTC epoch seconds, None where there was nothing to watch.

    Exact to ``look_seconds``. Looking is a read of mapped memory: it costs the engine nothing.
    """

    def __init__(self, files: Iterable[Path], *, look_seconds: float = LOOK_SECONDS, clock: Callable[[], float] = time.time):
        self._counters = [Counters(path) for path in files]
        self._look_seconds = look_seconds
        self._clock = clock
        self._seen = Stretches()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler-watch", daemon=True)

    def __enter__(self) -> SamplerWatch:
        if self._counters:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._counters:
            self._thread.join()
        for counters in self._counters:
            counters.close()

    @property
    def intervals(self) -> list[Interval] | None:
        return self._seen.closed(self._clock()) if self._counters else None

    def _watch(self) -> None:
        while not self._over.wait(self._look_seconds):
            read = [counters.read() for counters in self._counters]
            self._seen.look(self._clock(), any(one["running"] or one["waiting"] for one in read))


class Stretches:
    """From single looks at something that is on or off, the stretches in which it was on."""

    def __init__(self) -> None:
        self._found: list[Interval] = []
        self._since: float | None = None

    def look(self, now: float, on: bool) -> None:
        if on and self._since is None:
            self._since = now
        elif not on and self._since is not None:
            self._found.append((self._since, now))
            self._since = None

    def closed(self, now: float) -> list[Interval]:
        return [*self._found, *([(self._since, now)] if self._since is not None else [])]
