"""Starts workers: owns the template process, asks it for children, and keeps a few ready ahead of time.

Descriptors go to the template as file descriptors over a Unix socket, and a child comes back as a pidfd: so the host holds a handle on
it that works across namespaces and never means another process.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.rewards.sandbox import bubblewrap
from engine.rewards.sandbox.endings import ORPHANED
from engine.rewards.sandbox.frames import Forged
from engine.rewards.sandbox.worker import Late, Lost, Worker

log = logging.getLogger(__name__)

PRELOAD = ("numpy", "numpy.linalg", "numpy.fft", "numpy.random", "numpy.polynomial", "sympy", "sympy.parsing.latex", "math_verify")
PRELOAD_STANDARD = (
    *("ast", "bisect", "calendar", "collections", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions"),
    *("functools", "hashlib", "heapq", "html", "inspect", "itertools", "json", "keyword", "linecache", "logging", "math", "numbers"),
    *("operator", "pprint", "random", "re", "statistics", "string", "textwrap", "tokenize", "traceback", "typing", "unicodedata"),
    *("urllib.parse", "uuid", "warnings", "xml.etree.ElementTree"),
)
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    # Rewards that iterate over sets answer the same in every worker.
    "PYTHONHASHSEED": "0",
    **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")},
}
_START = "import sys; sys.path.insert(0, sys.argv[1]); from inside.template import main; main(int(sys.argv[2]), int(sys.argv[3]))"
_HERE = Path(__file__).resolve().parent
_PACKET_BYTES = 64 * 1024
_SPAWN_SECONDS = 10.0
_TEMPLATE_SECONDS = 60.0
_REFILL_DELAY_SECONDS = 0.02


class CannotSpawn(Exception):
    """No worker is to be had; the words say why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Walls:
    """What each child puts around itself. ``first_uid`` None: it stays the user that the runner is."""

    bubblewrap: bool
    landlock: bool
    bpf: bytes | None
    first_uid: int | None
    memory_bytes: int

    def request(self, slot: int) -> dict[str, Any]:
        return {
            "uid": None if self.first_uid is None else self.first_uid + slot,
            "memory_bytes": self.memory_bytes,
            "bpf": base64.b64encode(self.bpf).decode() if self.bpf else None,
            "landlock": self.landlock,
        }


class Nursery:
    """``take`` answers a worker at once while ``spares`` last. A template that died is started anew by the next ``take``."""

    def __init__(self, walls: Walls, *, spares: int):
        self._walls, self._spares_wanted = walls, spares
        self._spares: deque[Worker] = deque()
        self._template: _Template | None = None
        self._refill: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self.missing: tuple[str, ...] = ()

    async def start(self) -> dict[str, Any]:
        """Start the template and the spares; returns the first child's report on its walls. Raises ``CannotSpawn``."""
        worker, report = await self._spawn()
        self._spares.append(worker)
        await self._fill()
        return report

    async def take(self) -> Worker:
        """A worker that has seen no code yet. Raises ``CannotSpawn``."""
        while self._spares:
            worker = self._spares.popleft()
            self._refill_soon()
            if not worker.ended.done():
                worker.resume()
                return worker
            await worker.kill()
        worker, _ = await self._spawn()
        self._refill_soon()
        worker.resume()
        return worker

    async def close(self) -> None:
        if self._refill:
            self._refill.cancel()
            await asyncio.gather(self._refill, return_exceptions=True)
        await asyncio.gather(*(worker.kill() for worker in self._spares))
        self._spares.clear()
        if self._template:
            await self._template.close()

    def _refill_soon(self) -> None:
        if self._refill is None or self._refill.done():
            self._refill = asyncio.create_task(self._fill_or_log())

    async def _fill_or_log(self) -> None:
        # The worker just taken has work to do; a fork now would take the processor from it.
        await asyncio.sleep(_REFILL_DELAY_SECONDS)
        try:
            await self._fill()
        except CannotSpawn as error:
            log.warning("no spare worker: %s", error)

    async def _fill(self) -> None:
        while len(self._spares) < self._spares_wanted:
            worker, _ = await self._spawn()
            self._spares.append(worker)

    async def _spawn(self) -> tuple[Worker, dict]:
        async with self._starting:
            if self._template is None or self._template.dead:
                if self._template:
                    await self._template.close()
                self._template = await _Template.start(self._walls)
                self.missing = self._template.missing
        worker = await self._template.spawn(self._walls)
        report: dict = {}
        try:
            await worker.exchange(b"", report.update, seconds=_SPAWN_SECONDS)
        except (Late, Lost, Forged) as error:
            await worker.kill()
            raise CannotSpawn(f"a worker did not come up: {type(error).__name__} {error}") from error
        except BaseException:
            await worker.kill()
            raise
        if "ready" not in report:
            await worker.kill()
            raise CannotSpawn(str(report.get("failed")))
        worker.pause()
        return worker, report["ready"]


class _Template:
    """The process and its control socket."""

    def __init__(self, process: subprocess.Popen, control: socket.socket):
        self._loop = asyncio.get_running_loop()
        self._process, self._control = process, control
        self._spawned: dict[int, asyncio.Future[int]] = {}
        self._ended: dict[int, asyncio.Future[int]] = {}
        self._ready: asyncio.Future[dict] = self._loop.create_future()
        self._count = 0
        self._free_slots: list[int] = []
        self._slots = 0
        self.missing: tuple[str, ...] = ()
        self.dead = False
        self._loop.add_reader(control, self._read)

    @classmethod
    async def start(cls, walls: Walls) -> _Template:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            template = cls(_popen(theirs.fileno(), walls), ours)
        try:
            template._send({"setup": _setup()})
            async with asyncio.timeout(_TEMPLATE_SECONDS):
                ready = await asyncio.shield(template._ready)
        except (TimeoutError, OSError) as error:
            await template.close()
            raise CannotSpawn(f"the template did not come up: {error or 'no answer'}") from error
        except BaseException:
            await template.close()
            raise
        template.missing = tuple(ready["missing"])
        return template

    async def spawn(self, walls: Walls) -> Worker:
        self._count += 1
        number, slot = self._count, self._slot()
        requests_read, requests_write = os.pipe()
        replies_read, replies_write = os.pipe()
        log_read, log_write = os.pipe()
        theirs, ours = (log_write, requests_read, replies_write), (requests_write, replies_read, log_read)
        self._spawned[number] = self._loop.create_future()
        ended = self._ended[number] = self._loop.create_future()
        ended.add_done_callback(lambda _: self._free_slots.append(slot))
        try:
            packet = json.dumps({"spawn": number, "walls": walls.request(slot)}).encode()
            socket.send_fds(self._control, [packet], list(theirs))
            async with asyncio.timeout(_SPAWN_SECONDS):
                pidfd = await self._spawned[number]
        except (OSError, TimeoutError) as error:
            _close(*ours)
            raise CannotSpawn(f"the template does not answer: {error or 'no answer'}") from error
        except BaseException:
            _close(*ours)
            raise
        finally:
            _close(*theirs)
            self._spawned.pop(number, None)
        for fd in ours:
            os.set_blocking(fd, False)
        return Worker(pidfd=pidfd, requests_fd=requests_write, replies_fd=replies_read, log_fd=log_read, ended=ended)

    async def close(self) -> None:
        """Its children die with it. To be called once."""
        self._died()
        self._process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)
        self._control.close()

    def _slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        self._slots += 1
        return self._slots

    def _send(self, message: dict) -> None:
        self._control.send(json.dumps(message).encode())

    def _read(self) -> None:
        try:
            packet, fds, _, _ = socket.recv_fds(self._control, _PACKET_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            packet, fds = b"", []
        if not packet:
            self._died()
            return
        message = json.loads(packet)
        if "ready" in message:
            self._ready.set_result(message["ready"])
        elif "spawned" in message:
            self._settle(self._spawned, message["spawned"], fds[0])
        elif "ended" in message:
            self._settle(self._ended, message["ended"], message["status"])

    def _settle(self, waiting: dict[int, asyncio.Future[int]], number: int, value: int) -> None:
        future = waiting.pop(number, None)
        if future is not None and not future.done():
            future.set_result(value)
        elif waiting is self._spawned:
            # Nobody waits any more: kill what came too late.
            signal.pidfd_send_signal(value, signal.SIGKILL)
            os.close(value)

    def _died(self) -> None:
        if self.dead:
            return
        self.dead = True
        self._loop.remove_reader(self._control)
        gone = OSError("it ended")
        for future in (self._ready, *self._spawned.values()):
            if not future.done():
                future.set_exception(gone)
                # Nobody may be waiting for it any more.
                future.exception()
        for future in self._ended.values():
            if not future.done():
                future.set_result(ORPHANED)


def _popen(control_fd: int, walls: Walls) -> subprocess.Popen:
    python = os.path.realpath(sys.executable)
    # Inside bubblewrap's namespace the runner has no number.
    parent = 0 if walls.bubblewrap else os.getpid()
    command = [python, "-S", "-P", "-s", "-B", "-c", _START, str(_HERE), str(control_fd), str(parent)]
    if walls.bubblewrap:
        shown = [python, str(_HERE / "inside"), *_standard_folders(), *_site_folders()]
        command = [*bubblewrap.command(shown, as_root=walls.first_uid is not None, environment=_ENVIRONMENT), *command]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        cwd="/",
        pass_fds=[control_fd],
        start_new_session=True,
    )


def _setup() -> dict[str, Any]:
    return {"standard": _standard_folders(), "site": _site_folders(), "preload": [*PRELOAD_STANDARD, *PRELOAD]}


def _standard_folders() -> list[str]:
    return [sysconfig.get_path("stdlib"), sysconfig.get_config_var("DESTSHARED")]


def _site_folders() -> list[str]:
    return [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages") and os.path.isdir(path)]


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
