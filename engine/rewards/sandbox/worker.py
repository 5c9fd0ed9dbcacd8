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
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from engine.rewards.sandbox.frames import HEAD, Forged, decode
from engine.rewards.sandbox.verdicts import MAX_OUTPUT_BYTES

MAX_REPLY_BYTES = 64 * 1024
# Python allocates this much for each read: beyond malloc's threshold (128 kB) that is a mapping of its own, ten times as slow.
_READ_BYTES = 32 * 1024
# select() takes no larger descriptors.
_SELECTABLE = 1024
_QUICK_SECONDS, _STAY_SECONDS = 0.0002, 0.001
_LOG_BYTES_PER_TURN = 2**20
_LOG_PAUSE_SECONDS = 0.01
_TAIL_BYTES = 4096
_DUMP_SECONDS = 0.05
_END_SECONDS = 1.0
_OWN_LINE = re.compile(rb'File "<(?:reward|code|tests)>", line (\d{1,7}) in')

# What to do with a reply: the next request, or None when the exchange is over.
Take = Callable[[dict[str, Any]], bytes | None]


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
        self._unsent: bytes | memoryview = b""
        self._take: Take | None = None
        self._done: asyncio.Future[None] | None = None
        self._deadline = self._step_seconds = self._sent_at = 0.0
        self._watchdog: asyncio.TimerHandle | None = None
        self._closed_by_worker = self._stopped = self._dead = self._waits_to_write = self._dumps = False
        self.max_reply_bytes, self.keep_output_bytes = MAX_REPLY_BYTES, MAX_OUTPUT_BYTES
        self._output, self._tail, self._dropped = bytearray(), b"", 0
        self._loop.add_reader(replies_fd, self._read_replies)
        self._loop.add_reader(log_fd, self._read_log)

    async def exchange(self, request: bytes, take: Take, *, seconds: float) -> None:
        """Send a frame, hand the reply to ``take``, send what that answers, and so on until it answers None.

        The worker has ``seconds`` for each reply. Raises ``Late``, ``Lost`` or ``Forged`` (also when ``take`` does).
        """
        if self.tainted:
            raise Forged("words that nobody asked for")
        if self._closed_by_worker or self._dead:
            raise Lost(await self._status())
        self._done = self._loop.create_future()
        self._take = take
        self.allow(seconds)
        self._watchdog = self._loop.call_at(self._deadline, self._watch)
        try:
            self._send(request)
            await self._done
        except Lost:
            raise Lost(await self._status()) from None
        finally:
            self._watchdog.cancel()
            self._stop_writing()
            self._take = self._done = None

    def allow(self, seconds: float) -> None:
        """How long it may take to the next reply, from now on. For ``take`` as well."""
        self._step_seconds = seconds
        self._deadline = time.monotonic() + seconds

    @property
    def tainted(self) -> bool:
        """It spoke between two exchanges, as no honest worker does."""
        return bool(self._buffer)

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
        self._tail, self._dumps = b"", True
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
        self._stop_writing()
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
        """Read what is there. A worker that answers within microseconds is asked on at once, for a while: the loop costs more."""
        until = time.monotonic() + _STAY_SECONDS
        while self._read_reply() and self._sent_at < until:
            if not select.select((self._replies_fd,), (), (), _QUICK_SECONDS)[0]:
                return

    def _read_reply(self) -> bool:
        """Whether it was a whole reply that came quickly, and the next request is out."""
        try:
            chunk = os.read(self._replies_fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._closed_by_worker = True
            self._loop.remove_reader(self._replies_fd)
            self._finish(Lost())
            return False
        self._buffer += chunk
        if self._take is None:
            # Kept for the next exchange, which refuses it; no more of it is read.
            self._loop.remove_reader(self._replies_fd)
            return False
        try:
            return self._take_frame()
        except Forged as error:
            self._finish(error)
            return False

    def _take_frame(self) -> bool:
        if len(self._buffer) < HEAD.size:
            return False
        (size,) = HEAD.unpack_from(self._buffer)
        if size > self.max_reply_bytes:
            raise Forged(f"a frame of {size} bytes")
        if len(self._buffer) < HEAD.size + size:
            return False
        reply = decode(self._buffer[HEAD.size : HEAD.size + size])
        del self._buffer[: HEAD.size + size]
        try:
            return self._take_reply(reply)
        except Forged as error:
            error.reply = reply
            raise

    def _take_reply(self, reply: dict[str, Any]) -> bool:
        if self._buffer:
            raise Forged("more words than were asked for")
        now = time.monotonic()
        quick = now - self._sent_at < _QUICK_SECONDS
        self._deadline = now + self._step_seconds
        following = self._take(reply)
        if following is None:
            self._finish(None)
            return False
        self._send(following)
        return quick and not self._unsent and self._replies_fd < _SELECTABLE

    def _send(self, request: bytes) -> None:
        self._sent_at = time.monotonic()
        self._unsent = request
        self._write()

    def _write(self) -> None:
        try:
            while self._unsent:
                written = os.write(self._requests_fd, self._unsent)
                self._unsent = b"" if written == len(self._unsent) else memoryview(self._unsent)[written:]
        except BlockingIOError:
            self._waits_to_write = True
            self._loop.add_writer(self._requests_fd, self._write)
            return
        except BrokenPipeError:
            self._finish(Lost())
        self._stop_writing()

    def _stop_writing(self) -> None:
        if self._waits_to_write:
            self._waits_to_write = False
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
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
            if self._dumps:
                # Our own question's answer, not the tenant's words.
                continue
            kept = chunk[: max(0, self.keep_output_bytes - len(self._output))]
            self._output += kept
            self._dropped += len(chunk) - len(kept)
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
