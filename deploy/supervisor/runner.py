"""One part's life: wait for others → start → ready → (crash → back off → start …) → stop.

A runner is one asyncio task. Cancelling it is the way to stop the part: its ``finally`` ends the process and waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from deploy.supervisor import logs
from deploy.supervisor.backoff import Backoff
from deploy.supervisor.service import Service

KEEPER = Path(__file__).with_name("keeper.py")
ASK_SECONDS = 0.15
ALIVE_CHECK_SECONDS = 10.0
# A part that never came up is given up after so many tries, so that a broken installation ends with a message instead of looping.
START_TRIES = 3


class State(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    DONE = "done"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class Ended(Exception):
    """The part's process is gone, or had to be ended; the text says how."""


class Runner:
    def __init__(
        self,
        service: Service,
        *,
        cwd: Path,
        changed: Callable[[Runner], None],
        died: Callable[[], None] = lambda: None,
        held_descriptor: int | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.service = service
        self.state = State.WAITING
        self.note = ""
        self.restarts = 0
        self.since = clock()
        self.up = asyncio.Event()
        self.backoff = backoff or Backoff()
        self.log_start = 0
        self._cwd = cwd
        self._changed = changed
        self._died = died
        self._held = () if held_descriptor is None else (held_descriptor,)
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None

    async def live(self, others: Mapping[str, Runner]) -> None:
        """Runs until cancelled, or until a part that runs once is done. Raises ``Ended`` when it never came up."""
        try:
            for name in self.service.after:
                await others[name].up.wait()
            while not await self._one_life():
                await asyncio.sleep(self.backoff.delay_seconds)
        finally:
            await self._end()
            if self.state not in (State.DONE, State.FAILED):
                self._become(State.STOPPED)

    async def _one_life(self) -> bool:
        """One process from start to end. True: done for good; False: start it again after the back-off."""
        try:
            await self._start()
            if self.service.once:
                await self._finish()
                return True
            await self._await_ready()
            raise Ended(await self._watch())
        except Ended as end:
            await self._end()
            self._died()
            self._crashed(str(end))
            return False

    async def _start(self) -> None:
        service = self.service
        self._become(State.STARTING)
        self.log_start = service.log.stat().st_size if service.log.exists() else 0
        output = logs.open_log(service.log)
        try:
            os.write(output, f"--- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} start: {' '.join(service.command)}\n".encode())
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", str(KEEPER), str(os.getpid()), str(service.stop_seconds), str(service.niceness)),
                ",".join(map(str, service.cores)) or "-",
                *service.command,
                cwd=self._cwd,
                env={**os.environ, **service.environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in the terminal is the supervisor's to hear
                pass_fds=self._held,
            )
        finally:
            os.close(output)

    async def _finish(self) -> None:
        if not await self._exit_within(self.service.ready_seconds):
            raise Ended(f"not done after {self.service.ready_seconds:.0f} s")
        if self._process.returncode:
            raise Ended(f"failed with exit status {self._process.returncode}")
        self._become(State.DONE)
        self.up.set()

    async def _await_ready(self) -> None:
        give_up_at = self._clock() + self.service.ready_seconds
        while self.service.probe is not None:
            health = await self.service.probe(self.log_start)
            if self._process.returncode is not None:
                raise Ended(_how(self._process.returncode))
            if health.ready:
                break
            if self._clock() >= give_up_at:
                raise Ended(f"not ready after {self.service.ready_seconds:.0f} s")
            if health.note != self.note:
                self._become(State.STARTING, health.note)
            await self._exit_within(ASK_SECONDS)
        self.backoff = self.backoff.came_up(self._clock())
        self._become(State.READY)
        self.up.set()

    async def _watch(self) -> str:
        """Returns how the part ended; ends it itself when it stopped answering."""
        answered_at = self._clock()
        while not await self._exit_within(ALIVE_CHECK_SECONDS):
            if self.service.probe is None or self.service.hung_seconds is None:
                continue
            health = await self.service.probe(self.log_start)
            answered_at = self._clock() if health.answers else answered_at
            if self._clock() - answered_at >= self.service.hung_seconds:
                return f"no answer for {self.service.hung_seconds:.0f} s"
        return _how(self._process.returncode)

    async def _exit_within(self, seconds: float) -> bool:
        # Not asyncio.wait_for: before 3.12 it can swallow a cancellation that comes together with the result.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self._process.returncode is not None

    def _crashed(self, how: str) -> None:
        self.backoff = self.backoff.crashed(self._clock())
        if not self.up.is_set() and (self.service.once or self.backoff.failures >= START_TRIES):
            self._become(State.FAILED, how)
            raise Ended(f"{self.service.title}: {how}")
        self.restarts += 1
        self._become(State.RESTARTING, f"{how}; again in {self.backoff.delay_seconds:.1f} s")

    async def _end(self) -> None:
        """End the process and everything under it. The keeper does it; it is killed itself only if it cannot."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        if self.state in (State.STARTING, State.READY):
            self._become(State.STOPPING)
        for chosen, seconds in ((signal.SIGTERM, self.service.stop_seconds + 15.0), (signal.SIGKILL, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(chosen)
            if await self._exit_within(seconds):
                return

    @property
    def keeper_pid(self) -> int | None:
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    def _become(self, state: State, note: str = "") -> None:
        if state != self.state:
            self.since = self._clock()
        self.state, self.note = state, note
        self._changed(self)


def _how(status: int | None) -> str:
    if status is not None and status < 0:
        status = 128 - status  # the keeper itself was killed
    if status is not None and status > 128:
        with contextlib.suppress(ValueError):
            return f"ended by {signal.Signals(status - 128).name}"
    return f"ended with status {status}"
