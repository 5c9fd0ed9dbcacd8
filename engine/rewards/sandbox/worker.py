"""The host's end of one sandboxed process: its pipes, its deadline, its death.

ready → exchange → exchange … → kill
          │ Late     no answer in time        ┐
          │ Lost     the process ended        ├ afterwards only ``kill`` is left
          └ Forged   no honest reply          ┘
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable
from typing import Any

from engine.rewards.sandbox.frames import HEAD, Forged, decode
from engine.rewards.sandbox.verdicts import MAX_OUTPUT_BYTES

MAX_REPLY_BYTES = 2**20
_READ_BYTES = 256 * 1024
_LOG_BYTES_PER_TURN = 2**20
_LOG_PAUSE_SECONDS = 0.01
_TAIL_BYTES = 4096
_DUMP_SECONDS = 0.05
_END_SECONDS = 1.0
_OWN_LINE = re.compile(rb'File "<(?:reward|code|tests)>", line (\d{1,7}) in')

Take = Callable[[dict[str, Any]], bool]


class Late(Exception):
    """The worker did not answer in time."""


class Lost(Exception):
    """The worker ended, or closed its end. ``status``: its exit code, negative for a signal; None where that is not known."""

    def __init__(self, status: int | None = None):
        super().__init__(status)
        self.status = status


class Worker:
    """Owns ``pidfd`` and the three pipe ends, all non-blocking. ``ended`` is set to the exit status by the nursery."""

    def __init__(self, *, pidfd: int, requests_fd: int, replies_fd: int, log_fd: int, ended: asyncio.Future[int]):
        self._loop = asyncio.get_running_loop()
        self._pidfd, self._requests_fd, self._replies_fd, self._log_fd = pidfd, requests_fd, replies_fd, log_fd
        self.ended = ended
        self._buffer = bytearray()
        self._unsent = memoryview(b"")
        self._take: Take | None = None
        self._done: asyncio.Future[None] | None = None
        self._deadline = self._step_seconds = 0.0
        self._watchdog: asyncio.TimerHandle | None = None
        self._closed_by_worker = self._stopped = self._dead = False
        self.keep_output_bytes = MAX_OUTPUT_BYTES
        self._output, self._tail, self._dropped = bytearray(), b"", 0
        self._loop.add_reader(replies_fd, self._read_replies)
        self._loop.add_reader(log_fd, self._read_log)

    async def exchange(self, request: bytes, take: Take, *, seconds: float) -> None:
        """Send a frame, and hand each reply to ``take`` until it answers True. ``seconds`` may pass before each of them.

        Raises ``Late``, ``Lost`` or ``Forged`` (also when ``take`` does).
        """
        if self._buffer:
            raise Forged("words that nobody asked for")
        if self._closed_by_worker or self._dead:
            raise Lost(await self._status())
        self._done = self._loop.create_future()
        self._take, self._step_seconds = take, seconds
        self._deadline = self._loop.time() + seconds
        self._watchdog = self._loop.call_at(self._deadline, self._watch)
        self._unsent = memoryview(request)
        try:
            self._write()
            await self._done
        except Lost:
            raise Lost(await self._status()) from None
        finally:
            self._watchdog.cancel()
            self._loop.remove_writer(self._requests_fd)
            self._take = self._done = None

    def pause(self) -> None:
        """Stop the process while nobody waits for it: timers and handlers that a tenant left behind cannot burn a core."""
        if not self._stopped and not self._dead:
            self._stopped = True
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._stopped:
            self._stopped = False
            self._signal(signal.SIGCONT)

    async def hanging_line(self) -> int | None:
        """The line of the tenant's source at which the process hangs, by its own words. To be asked right before ``kill``."""
        self._tail = b""
        self._signal(signal.SIGUSR1)
        deadline = self._loop.time() + _DUMP_SECONDS
        while self.last_line() is None and self._loop.time() < deadline:
            await asyncio.sleep(_DUMP_SECONDS / 10)
        return self.last_line()

    def last_line(self) -> int | None:
        found = _OWN_LINE.search(self._tail)
        return int(found[1]) if found else None

    async def kill(self) -> None:
        """End the process, wait for that, and close everything. Safe to call again."""
        if self._dead:
            return
        self._dead = True
        self._signal(signal.SIGKILL)
        for fd in (self._replies_fd, self._log_fd):
            self._loop.remove_reader(fd)
        self._loop.remove_writer(self._requests_fd)
        try:
            await self._status()
        finally:
            for fd in (self._pidfd, self._requests_fd, self._replies_fd, self._log_fd):
                os.close(fd)

    def take_output(self) -> tuple[bytes, int]:
        """What it printed since the last time: the first bytes, and how many more there were."""
        if not self._dead:
            self._read_log()
        taken = bytes(self._output), self._dropped
        self._output.clear()
        self._dropped = 0
        return taken

    # The loop calls these.

    def _read_replies(self) -> None:
        try:
            chunk = os.read(self._replies_fd, _READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._closed_by_worker = True
            self._loop.remove_reader(self._replies_fd)
            self._finish(Lost())
            return
        self._buffer += chunk
        if self._take is None:
            # Kept for the next exchange, which refuses it; no more of it is read.
            self._loop.remove_reader(self._replies_fd)
            return
        try:
            self._take_frames()
        except Forged as error:
            self._finish(error)

    def _take_frames(self) -> None:
        start = 0
        while len(self._buffer) - start >= HEAD.size:
            (size,) = HEAD.unpack_from(self._buffer, start)
            if size > MAX_REPLY_BYTES:
                raise Forged(f"a frame of {size} bytes")
            end = start + HEAD.size + size
            if len(self._buffer) < end:
                break
            reply = decode(self._buffer[start + HEAD.size : end])
            start = end
            self._deadline = self._loop.time() + self._step_seconds
            if self._take(reply):
                self._finish(None)
                break
        del self._buffer[:start]

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._requests_fd, self._unsent) :]
        except BlockingIOError:
            self._loop.add_writer(self._requests_fd, self._write)
            return
        except BrokenPipeError:
            self._finish(Lost())
        self._loop.remove_writer(self._requests_fd)

    def _watch(self) -> None:
        if self._loop.time() < self._deadline:
            self._watchdog = self._loop.call_at(self._deadline, self._watch)
        else:
            self._finish(Late())

    def _finish(self, error: Exception | None) -> None:
        if self._done is None or self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)

    def _read_log(self) -> None:
        """Keep the first bytes, count the rest, and do not let a flood take the loop from the others."""
        taken = 0
        while taken < _LOG_BYTES_PER_TURN:
            try:
                chunk = os.read(self._log_fd, _READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                self._loop.remove_reader(self._log_fd)
                return
            taken += len(chunk)
            kept = chunk[: max(0, self.keep_output_bytes - len(self._output))]
            self._output += kept
            self._dropped += len(chunk) - len(kept)
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
        self._loop.remove_reader(self._log_fd)
        self._loop.call_later(_LOG_PAUSE_SECONDS, self._read_log_again)

    def _read_log_again(self) -> None:
        if not self._dead:
            self._loop.add_reader(self._log_fd, self._read_log)

    async def _status(self) -> int | None:
        try:
            async with asyncio.timeout(_END_SECONDS):
                return await asyncio.shield(self.ended)
        except TimeoutError:
            # It closed its descriptors and lives on.
            return None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)
