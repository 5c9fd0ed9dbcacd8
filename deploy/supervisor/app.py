"""All parts together: one lock, one start, one stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from deploy.supervisor import logs, orphans
from deploy.supervisor.lock import Lock
from deploy.supervisor.probes import Probe
from deploy.supervisor.progress import Display
from deploy.supervisor.runner import Ended, Runner
from deploy.supervisor.service import Service
from engine import log_files

ROTATE_SECONDS = 30.0
ASK_AGAIN_SECONDS = 0.5


class StartFailed(Exception):
    """A part could not be brought up. The text names it, its log and the log's last lines."""


class Supervisor:
    """``async with Supervisor(…) as s: await s.ready(); await s.stopped()``: leaving the block ends every part.

    ``adopts``: this process does nothing else, so it may end whatever falls to it when a keeper is killed.
    """

    def __init__(
        self,
        services: Sequence[Service],
        *,
        lock: Lock,
        owner: dict[str, object],
        cwd: Path,
        display: Display,
        adopts: bool = False,
    ):
        self._services = services
        self._lock = lock
        self._owner = owner
        self._cwd = cwd
        self._display = display
        self._adopts = adopts
        self._stop = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.runners: dict[str, Runner] = {}

    async def __aenter__(self) -> Supervisor:
        self._lock.acquire(self._owner)
        if self._adopts:
            orphans.adopt()
        for service in self._services:
            self.runners[service.name] = Runner(
                service,
                cwd=self._cwd,
                changed=self._display.changed,
                died=self._end_orphans,
                held_descriptor=self._lock.descriptor,
            )
        self._display.start(list(self.runners.values()))
        for name, runner in self.runners.items():
            self._tasks[name] = asyncio.create_task(runner.live(self.runners), name=name)
        self._tasks["log rotation"] = asyncio.create_task(self._rotate_logs())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._display.stopping()
        self._tasks.pop("log rotation").cancel()
        await asyncio.gather(*(self._end(name) for name in self.runners))
        self._end_orphans()
        self._lock.release()
        self._display.stop()

    def request_stop(self) -> None:
        self._stop.set()

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """While inside, SIGINT, SIGTERM and SIGHUP ask for a stop."""
        loop = asyncio.get_running_loop()
        chosen = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in chosen:
            loop.add_signal_handler(number, self.request_stop)
        try:
            yield
        finally:
            for number in chosen:
                loop.remove_signal_handler(number)

    async def ready(self) -> bool:
        """Wait until every part is up. False: a stop was asked for meanwhile. Raises ``StartFailed``."""
        return await self._until(asyncio.create_task(self._all_up()))

    async def _all_up(self) -> None:
        for runner in self.runners.values():
            await runner.up.wait()

    async def until_answered(self, probe: Probe, tell: Callable[[str], None]) -> bool:
        """Wait until something that is no part of ours is ready; ``tell(why)`` hears why it is not, when that changes.

        False: a stop was asked for meanwhile. Raises ``StartFailed``.
        """
        return await self._until(asyncio.create_task(_answered(probe, tell)))

    async def stopped(self) -> None:
        """Wait until a stop is asked for. Raises ``StartFailed`` if a part ends for good by itself."""
        await self._until(asyncio.get_running_loop().create_future())

    async def _until(self, wanted: asyncio.Future[object]) -> bool:
        stop = asyncio.create_task(self._stop.wait())
        lives = [task for name, task in self._tasks.items() if name in self.runners]
        try:
            while not wanted.done():
                open_lives = [task for task in lives if not task.done()]
                await asyncio.wait([wanted, stop, *open_lives], return_when=asyncio.FIRST_COMPLETED)
                self._raise_failure()
                if stop.done():
                    return False
            return True
        finally:
            stop.cancel()
            wanted.cancel()

    def _raise_failure(self) -> None:
        for name, runner in self.runners.items():
            task = self._tasks[name]
            if not task.done() or task.cancelled() or (error := task.exception()) is None:
                continue
            if not isinstance(error, Ended):
                raise error
            last_lines = "\n".join(f"    {line}" for line in logs.tail(runner.service.log, 20, from_byte=runner.log_start))
            raise StartFailed(f"{error}\n  its log: {runner.service.log}\n{last_lines}")

    async def _end(self, name: str) -> None:
        """Stop one part, after every part that needs it."""
        dependents = [other for other, runner in self.runners.items() if name in runner.service.after]
        # The tasks, not the calls of this method: each is stopped by its own call, all of which run at once.
        await asyncio.wait([self._tasks[other] for other in dependents]) if dependents else None
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name]])

    def _end_orphans(self) -> None:
        if self._adopts:
            orphans.end_orphans({runner.keeper_pid for runner in self.runners.values() if runner.keeper_pid})

    async def _rotate_logs(self) -> None:
        while True:
            for service in self._services:
                with contextlib.suppress(OSError):  # a full disk; the next round tries again
                    log_files.rotate(service.log)
            await asyncio.sleep(ROTATE_SECONDS)


async def _answered(probe: Probe, tell: Callable[[str], None]) -> None:
    told = None
    while not (health := await probe(0)).ready:
        why = f"is not ready{f': {health.note}' if health.note else ''}" if health.answers else "does not answer"
        if why != told:
            told = why
            tell(why)
        await asyncio.sleep(ASK_AGAIN_SECONDS)
