"""The engine's end: starts the reward-runner, hands it requests, and starts it anew when it died. See the package's own words."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.rewards.sandbox import wires
from engine.rewards.sandbox.frames import encode
from engine.rewards.sandbox.strength import SandboxSettings, Strength, TooWeak
from engine.rewards.sandbox.verdicts import MAX_ITEM_BYTES, MAX_SOURCE_BYTES, CodeTest, Failed, Limits, Output, Ran, TestOutcome, Verdict

log = logging.getLogger(__name__)

_ROOT = Path(__file__).resolve().parents[3]
_START = "import sys; sys.path.insert(0, sys.argv[1]); from engine.rewards.runner import main; main(int(sys.argv[2]), int(sys.argv[3]))"
_START_SECONDS = 120.0
_END_SECONDS = 10.0
_USUAL = Limits()
_GONE = "the reward-runner ended; try again"


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """How the runner process is started: ``prefix`` is a command that ends by executing its arguments, as ``setpriv`` does.

    ``python`` and ``root`` (the folder that holds ``engine``) are for a user who cannot read the engine's own.
    """

    prefix: tuple[str, ...] = ()
    python: str = sys.executable
    root: Path = _ROOT


class Sandbox:
    def __init__(self, settings: SandboxSettings | None = None, launch: Launch | None = None):
        self._settings, self._launch = settings or SandboxSettings(), launch or Launch()
        self._runner: _Runner | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        # Here, since the runner imports this package too, and has nothing but the standard library.
        from msgspec.json import encode

        self._encode = encode
        self.strength: Strength | None = None

    async def start(self) -> Strength:
        """Start the runner, if it does not run. Raises ``TooWeak``, or ``OSError`` where no process can be started."""
        runner = await self._running()
        self.strength = runner.strength
        return runner.strength

    async def close(self) -> None:
        """End the runner and all its workers. What is asked afterwards is ``unavailable``."""
        self._closed = True
        async with self._starting:
            runner, self._runner = self._runner, None
            if runner:
                await runner.close()

    async def grade(self, key: str, source: str, items: Sequence[Mapping[str, Any]], limits: Limits = _USUAL) -> list[Verdict]:
        """See the package. ``key`` must name tenant and reward version."""
        if len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
            return [Failed(kind="import_error", message=f"the source is larger than {MAX_SOURCE_BYTES // 1024} kB")] * len(items)
        texts = [_item_text(item, self._encode) for item in items]
        if None not in texts:
            return await self._graded(key, source, texts, limits)
        answers = iter(await self._graded(key, source, [text for text in texts if text is not None], limits))
        return [_TOO_LARGE if text is None else next(answers) for text in texts]

    async def run_code(self, code: str, tests: Sequence[CodeTest], limits: Limits = _USUAL) -> list[TestOutcome]:
        """See the package."""
        request = {"op": "code", "code": code, "tests": [wires.test_out(test) for test in tests], "seconds": limits.call_seconds}
        answer = await self._ask(request)
        if isinstance(answer, Failed):
            return [TestOutcome(passed=False, message=answer.message, error=answer)] * len(tests)
        return [wires.outcome_in(raw) for raw in answer["outcomes"]]

    async def run_program(self, code: str, limits: Limits = _USUAL) -> Ran:
        """See the package."""
        if len(code.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
            return Ran(text="", error=Failed(kind="import_error", message=f"the code is larger than {MAX_SOURCE_BYTES // 1024} kB"))
        answer = await self._ask({"op": "program", "code": code, "seconds": limits.call_seconds})
        return Ran(text="", error=answer) if isinstance(answer, Failed) else wires.ran_in(answer["ran"])

    async def output(self, key: str, source: str) -> Output:
        """What the reward printed during its latest batch."""
        answer = await self._ask({"op": "output", "key": key, "source": _name(source)})
        return Output() if isinstance(answer, Failed) else Output(text=answer["text"], dropped_bytes=answer["dropped_bytes"])

    async def _graded(self, key: str, source: str, items: list[str], limits: Limits) -> list[Verdict]:
        request = {"op": "grade", "key": key, "source": _name(source), "items": items}
        answer = await self._ask({**request, "seconds": limits.call_seconds, "max_losses": limits.max_losses}, source)
        if isinstance(answer, Failed):
            return [answer] * len(items)
        return [wires.verdict_in(raw) for raw in answer["verdicts"]]

    async def _ask(self, request: dict[str, Any], source: str | None = None) -> dict[str, Any] | Failed:
        """The runner's answer, or that it is our fault that there is none."""
        try:
            answer = await (await self._running()).ask(request, source)
        except (OSError, TooWeak) as error:
            log.warning("the reward-runner could not be asked", exc_info=error)
            return Failed(kind="unavailable", message=str(error) or _GONE)
        return Failed(kind="unavailable", message=answer["failed"]) if "failed" in answer else answer

    async def _running(self) -> _Runner:
        async with self._starting:
            if self._closed:
                raise ConnectionError("the sandbox is closed")
            if self._runner is None or self._runner.gone:
                if self._runner:
                    await self._runner.close()
                self._runner = await _Runner.start(self._settings, self._launch)
            return self._runner


async def prove(settings: SandboxSettings) -> Strength:
    """What the walls are on this machine, for a start that shall fail early. Raises ``TooWeak``; leaves nothing running."""
    sandbox = Sandbox(replace(settings, spares=1))
    try:
        return await sandbox.start()
    finally:
        await sandbox.close()


class _Runner:
    """One runner process and the requests that it owes an answer."""

    def __init__(self, process: subprocess.Popen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._process, self._reader, self._writer = process, reader, writer
        self._owed: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._known: set[str] = set()
        self._count = 0
        self._listening: asyncio.Task[None] | None = None
        self.gone = False
        self.strength: Strength

    @classmethod
    async def start(cls, settings: SandboxSettings, launch: Launch) -> _Runner:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [*launch.prefix, launch.python, "-I", "-B", "-c", _START, str(launch.root), str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={"LANG": "C.UTF-8"},
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        runner = cls(process, *await asyncio.open_connection(sock=ours, limit=wires.MAX_FRAME_BYTES))
        try:
            async with asyncio.timeout(_START_SECONDS):
                await wires.write(runner._writer, {"settings": asdict(settings)})
                answer = await wires.read(runner._reader)
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            await runner.close()
            raise OSError(f"the reward-runner did not start: {error or 'no answer'}") from error
        except BaseException:
            await runner.close()
            raise
        if "too_weak" in answer:
            await runner.close()
            raise TooWeak(answer["too_weak"])
        runner.strength = Strength(**{**answer["strength"], "missing": tuple(answer["strength"]["missing"])})
        runner._listening = asyncio.create_task(runner._listen())
        return runner

    async def ask(self, request: dict[str, Any], source: str | None) -> dict[str, Any]:
        """Raises ``OSError`` when the runner ends first. ``source``: the text behind ``request["source"]``."""
        while True:
            if source is not None and request["source"] not in self._known:
                self._known.add(request["source"])
                await self._send({"source": request["source"], "text": source})
            answer = await self._answer(request)
            if "unknown_source" not in answer:
                return answer
            self._known.discard(request["source"])

    async def close(self) -> None:
        """Its workers are gone when this returns."""
        self._all_gone()
        self._writer.close()
        if self._listening:
            self._listening.cancel()
        try:
            await asyncio.to_thread(self._process.wait, _END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(self._process.wait)

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        number = self._count
        answer = self._owed[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, **request})
            return await answer
        except asyncio.CancelledError:
            if request["op"] == "program" and not self.gone:
                self._writer.write(encode({"cancel": number}))
            raise
        finally:
            self._owed.pop(number, None)

    async def _send(self, message: dict[str, Any]) -> None:
        if self.gone:
            raise ConnectionError(_GONE)
        await wires.write(self._writer, message)

    async def _listen(self) -> None:
        try:
            while True:
                answer = await wires.read(self._reader)
                waiting = self._owed.get(answer["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._all_gone()

    def _all_gone(self) -> None:
        self.gone = True
        for waiting in self._owed.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(_GONE))


@lru_cache(maxsize=256)
def _name(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


def _item_text(item: Mapping[str, Any], encode: Callable[[Any], bytes]) -> str | None:
    """As the runner puts it into its questions: encoded once, here, and read only behind the walls. None: too large, or too deep."""
    parts = {"sample": item["sample"], "item": item["item"]}
    try:
        text = encode(parts).decode()
    except (UnicodeEncodeError, OverflowError):
        # Lone surrogates and whole numbers of more than 64 bits.
        text = json.dumps(parts)
    except RecursionError:
        return None
    return text[1:-1] if len(text) <= MAX_ITEM_BYTES else None


_TOO_LARGE = Failed(kind="too_large", message=f"the item is larger than {MAX_ITEM_BYTES >> 20} MiB, or nested too deeply")
