"""``math-verify`` in plain child processes that can be killed: it may hang or eat memory on a hostile answer, and it raises in threads.

Children are started ahead, serve one comparison at a time, and are killed hard at the deadline. A comparison that times out or breaks
its process is tried once more in a fresh one and then comes back invalid, never as 0.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

from engine.rewards.graders import RIGHT, WRONG, GradeResult, invalid
from engine.rewards.math_child import MAX_FRAME_BYTES

log = logging.getLogger(__name__)

_ROOT = Path(__file__).resolve().parents[2]
# -I: no user site, no PYTHON* variables; -c instead of -m: this folder holds a `math.py` that must not shadow the standard one.
_START = "import sys; sys.path.insert(0, sys.argv[1]); from engine.rewards.math_child import main; main(int(sys.argv[2]), int(sys.argv[3]))"
_MAX_CHARACTERS = 20_000
_TRIES = 2


class MathChild:
    """One process. Any exception from ``ask`` or ``start`` leaves it dead; it is never reused after one."""

    def __init__(self, process: asyncio.subprocess.Process):
        self._process = process

    @classmethod
    async def start(cls, *, seconds: float, memory_bytes: int) -> MathChild:
        """A child that has loaded math-verify; raises ``TimeoutError`` or ``OSError``/``EOFError`` when it does not come up."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", _START, str(_ROOT), str(os.getpid()), str(memory_bytes)),
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

    async def ask(self, answer: str, reference: str, *, seconds: float) -> dict:
        body = json.dumps({"answer": answer, "reference": reference}).encode()
        async with asyncio.timeout(seconds):
            self._process.stdin.write(len(body).to_bytes(4, "big") + body)
            await self._process.stdin.drain()
            return await self._read()

    async def _read(self) -> dict:
        size = int.from_bytes(await self._process.stdout.readexactly(4), "big")
        if size > MAX_FRAME_BYTES:
            raise EOFError(f"a frame of {size} bytes")
        return json.loads(await self._process.stdout.readexactly(size))

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._process.stdin.close()


class MathPool:
    """``size`` children; ``compare`` waits for a free one (that wait is outside the comparison's own time limit)."""

    def __init__(self, *, size: int = 1, seconds: float = 5.0, start_seconds: float = 60.0, memory_bytes: int = 2 * 2**30):
        self._size, self._seconds, self._start_seconds, self._memory_bytes = size, seconds, start_seconds, memory_bytes
        self._free: asyncio.Queue[MathChild | None] = asyncio.Queue()
        self._all: set[MathChild] = set()
        self._started: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start all children; safe to call again. Without it the first ``compare`` does so."""
        if self._started is None:
            self._started = asyncio.create_task(self._fill())
        await asyncio.shield(self._started)

    async def close(self) -> None:
        if self._started is not None:
            await asyncio.gather(self._started, return_exceptions=True)
        await asyncio.gather(*(self._drop(child) for child in list(self._all)))

    async def compare(self, answer: str, reference: str) -> GradeResult:
        """Whether both are mathematically equal, as a reward."""
        await self.start()
        if len(answer) > _MAX_CHARACTERS:
            # The answer stands at the end; the parser's time grows with the length.
            answer = answer[-_MAX_CHARACTERS:]
        why = ""
        for _ in range(_TRIES):
            reply = await self._ask(answer, reference)
            if isinstance(reply, dict):
                return _result(reply)
            why = reply
        return invalid(f"math: {why}")

    async def _ask(self, answer: str, reference: str) -> dict | str:
        child = await self._free.get()
        try:
            child = child or await self._new()
            reply = await child.ask(answer, reference, seconds=self._seconds)
        except TimeoutError:
            await self._replace(child)
            return f"no verdict within {self._seconds:g} s"
        except (OSError, EOFError, ValueError) as error:
            log.warning("a math grading process broke", exc_info=error)
            await self._replace(child)
            return "the grading process broke"
        except BaseException:
            # Cancelled in the middle of a frame: its next answer would be this one's.
            await self._replace(child)
            raise
        self._free.put_nowait(child)
        return reply

    async def _fill(self) -> None:
        for child in await asyncio.gather(*(self._new() for _ in range(self._size))):
            self._free.put_nowait(child)

    async def _new(self) -> MathChild:
        child = await MathChild.start(seconds=self._start_seconds, memory_bytes=self._memory_bytes)
        self._all.add(child)
        return child

    async def _replace(self, child: MathChild | None) -> None:
        """Kill ``child`` and put an empty place in its stead; the next comparison fills it."""
        self._free.put_nowait(None)
        if child is not None:
            await asyncio.shield(self._drop(child))

    async def _drop(self, child: MathChild) -> None:
        self._all.discard(child)
        await child.kill()


def _result(reply: dict) -> GradeResult:
    if isinstance(reply.get("equal"), bool):
        return RIGHT if reply["equal"] else WRONG
    return invalid(f"math: {reply.get('invalid', 'an answer without a verdict')}")
