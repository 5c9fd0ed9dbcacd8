"""Plain child processes that can be killed, for comparisons that may hang or eat memory on a hostile text (``child``).

Children are started ahead, serve one comparison at a time, and are killed hard at the deadline; a fresh one takes the place of a dead
one. Owners (jobs) are served in turn: one whose comparisons all hang makes each other wait for one of them at most.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any, Literal

from engine.rewards.child import MAX_FRAME_BYTES
from engine.rewards.graders import CRASH, REFERENCE, TIMEOUT, GradingFailed

log = logging.getLogger(__name__)

_ROOT = Path(__file__).resolve().parents[2]
# -I: no user site, no PYTHON* variables; -c instead of -m: nothing in this folder must shadow a standard module.
_START = (
    "import sys; root, role, parent, memory = sys.argv[1:]; sys.path.insert(0, root); "
    "from engine.rewards.child import main; main(role, int(parent), int(memory))"
)

Role = Literal["math", "text"]


class Child:
    """One process. Any exception from ``ask`` or ``start`` leaves it dead; it is never reused after one."""

    def __init__(self, process: asyncio.subprocess.Process):
        self._process = process

    @classmethod
    async def start(cls, role: Role, *, seconds: float, memory_bytes: int) -> Child:
        """A child that has loaded its libraries; raises ``TimeoutError`` or ``OSError``/``EOFError`` when it does not come up."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", _START, str(_ROOT), role, str(os.getpid()), str(memory_bytes)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"},
            close_fds=True,
        )
        child = cls(process)
        try:
            async with asyncio.timeout(seconds):
                await child._read()
        except BaseException:
            await child.kill()
            raise
        return child

    async def ask(self, request: dict[str, Any], *, seconds: float) -> dict[str, Any]:
        body = json.dumps(request).encode()
        async with asyncio.timeout(seconds):
            self._process.stdin.write(len(body).to_bytes(4, "big") + body)
            await self._process.stdin.drain()
            return await self._read()

    async def _read(self) -> dict[str, Any]:
        size = int.from_bytes(await self._process.stdout.readexactly(4), "big")
        if size > MAX_FRAME_BYTES:
            raise EOFError(f"a frame of {size} bytes")
        return json.loads(await self._process.stdout.readexactly(size))

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._process.stdin.close()


class Turns:
    """Places that are lent out; when all are taken, the owners that wait get one each before any gets a second."""

    def __init__(self) -> None:
        self._free: list[Child | None] = []
        self._lines: OrderedDict[str, deque[asyncio.Future[Child | None]]] = OrderedDict()

    async def take(self, owner: str) -> Child | None:
        if self._free:
            return self._free.pop()
        place: asyncio.Future[Child | None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(owner, deque()).append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give(place.result())
            raise

    def give(self, child: Child | None) -> None:
        while self._lines:
            owner, line = self._lines.popitem(last=False)
            place = line.popleft()
            if line:
                self._lines[owner] = line
            if not place.done():
                place.set_result(child)
                return
        self._free.append(child)


class ChildPool:
    """``size`` children of one role; waiting for a free one lies outside of a comparison's own time limit."""

    def __init__(self, role: Role, *, size: int = 1, seconds: float = 5.0, start_seconds: float = 60.0, memory_bytes: int = 2 * 2**30):
        self._role, self._size, self._seconds = role, size, seconds
        self._start_seconds, self._memory_bytes = start_seconds, memory_bytes
        self._turns = Turns()
        self._all: set[Child] = set()
        self._started: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start all children; safe to call again. Without it the first ``ask`` does so."""
        if self._started is None:
            self._started = asyncio.create_task(self._fill())
        await asyncio.shield(self._started)

    async def close(self) -> None:
        if self._started is not None:
            await asyncio.gather(self._started, return_exceptions=True)
        await asyncio.gather(*(self._drop(child) for child in list(self._all)))

    async def ask(self, request: dict[str, Any], *, owner: str = "") -> bool | float:
        """The child's verdict. Raises ``GradingFailed``; to be asked again where it says so."""
        await self.start()
        return _verdict(await self._ask(request, owner))

    async def _ask(self, request: dict[str, Any], owner: str) -> dict[str, Any]:
        child = await self._turns.take(owner)
        try:
            child = child or await self._new()
            reply = await child.ask(request, seconds=self._seconds)
        except TimeoutError:
            await self._replace(child)
            # Not again: the same comparison would take as long, on a process that all jobs share.
            raise GradingFailed(TIMEOUT, f"no verdict within {self._seconds:g} s") from None
        except (OSError, EOFError, ValueError) as error:
            log.warning("a grading process broke", exc_info=error)
            await self._replace(child)
            raise GradingFailed(CRASH, "the grading process broke", retry=True) from error
        except BaseException:
            # Cancelled in the middle of a frame: its next answer would be this one's.
            await self._replace(child)
            raise
        self._turns.give(child)
        return reply

    async def _fill(self) -> None:
        for child in await asyncio.gather(*(self._new() for _ in range(self._size))):
            self._turns.give(child)

    async def _new(self) -> Child:
        child = await Child.start(self._role, seconds=self._start_seconds, memory_bytes=self._memory_bytes)
        self._all.add(child)
        return child

    async def _replace(self, child: Child | None) -> None:
        """Kill ``child`` and put an empty place in its stead; the next comparison fills it."""
        self._turns.give(None)
        if child is not None:
            await asyncio.shield(self._drop(child))

    async def _drop(self, child: Child) -> None:
        self._all.discard(child)
        await child.kill()


def _verdict(reply: dict[str, Any]) -> bool | float:
    value = reply.get("value")
    if isinstance(value, bool | int | float):
        return value
    raise GradingFailed(REFERENCE, str(reply.get("invalid", "an answer without a verdict")))
