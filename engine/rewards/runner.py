"""The reward-runner: a process of its own that owns all sandboxed workers. It has no secrets, no Ray, no database and no network.

The engine starts it with an empty environment in the root folder and talks to it over one Unix socket, in frames of JSON:

    {"settings": {...}}                                          → {"strength": {...}} or {"too_weak": why}; then, in any order:
    {"source": id, "text": ...}                                  (no answer; kept for the calls that name it)
    {"id", "op": "grade", "key", "source", "items", "seconds", "max_losses"}     → {"id", "verdicts"} or {"id", "unknown_source": true}
    {"id", "op": "code", "code", "tests", "seconds"}             → {"id", "outcomes"}
    {"id", "op": "program", "code", "seconds"}                   → {"id", "ran"}
    {"cancel": id}                                               (no answer; the program ends, and nor has it an answer)
    {"id", "op": "output", "key", "source"}                      → {"id", "text", "dropped_bytes"}

The end of the socket, or of the engine, is its end, and its end is the end of every worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections import OrderedDict
from dataclasses import asdict
from typing import Any

from engine.rewards.sandbox import wires
from engine.rewards.sandbox.registry import Registry
from engine.rewards.sandbox.strength import SandboxSettings, TooWeak, open_nursery

log = logging.getLogger("engine.rewards.runner")

_KEPT_SOURCES_BYTES = 64 * 2**20


def main(socket_fd: int, engine_pid: int) -> None:
    """Serve until the socket or the engine ends."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    # Ctrl-C in the engine's terminal is the engine's affair.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Four descriptors for each worker.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_serve(socket.socket(fileno=socket_fd), engine_pid))


async def _serve(engine: socket.socket, engine_pid: int) -> None:
    reader, writer = await asyncio.open_connection(sock=engine, limit=wires.MAX_FRAME_BYTES)
    serving = asyncio.create_task(_converse(reader, writer))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    _cancel_with(engine_pid, serving)
    try:
        await serving
    except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def _cancel_with(engine_pid: int, serving: asyncio.Task[None]) -> None:
    """The socket alone is not enough: a child that the engine forked may hold its other end open."""
    try:
        pidfd = os.pidfd_open(engine_pid)
    except ProcessLookupError:
        serving.cancel()
        return
    asyncio.get_running_loop().add_reader(pidfd, serving.cancel)


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    settings = SandboxSettings(**(await wires.read(reader))["settings"])
    try:
        nursery, strength = await open_nursery(settings)
    except TooWeak as error:
        log.error("%s", error)
        await wires.write(writer, {"too_weak": str(error)})
        return
    log.info("%s", strength)
    registry = Registry(nursery, max_workers=settings.max_workers)
    try:
        await wires.write(writer, {"strength": strength.as_dict()})
        await _Conversation(registry, writer).serve(reader)
    finally:
        await registry.close()


class _Conversation:
    def __init__(self, registry: Registry, writer: asyncio.StreamWriter):
        self._registry, self._writer = registry, writer
        self._sources: OrderedDict[str, str] = OrderedDict()
        self._sources_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._programs: dict[int, asyncio.Task[None]] = {}

    async def serve(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                message = await wires.read(reader)
                if "text" in message:
                    self._keep(message["source"], message["text"])
                    continue
                if "cancel" in message:
                    if program := self._programs.get(message["cancel"]):
                        program.cancel()
                    continue
                self._begin(message)
        finally:
            for task in self._tasks:
                task.cancel()

    def _begin(self, message: dict[str, Any]) -> None:
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if message["op"] == "program":
            self._programs[message["id"]] = task
            task.add_done_callback(lambda _: self._programs.pop(message["id"]))

    async def _answer(self, message: dict[str, Any]) -> None:
        try:
            answer = await getattr(self, f"_{message['op']}")(message)
        except Exception as error:
            log.exception("a request failed: %s", message["op"])
            answer = {"failed": f"{type(error).__name__}: {error}"}
        await wires.write(self._writer, {"id": message["id"], **answer})

    async def _grade(self, message: dict[str, Any]) -> dict[str, Any]:
        source = self._sources.get(message["source"])
        if source is None:
            return {"unknown_source": True}
        self._sources.move_to_end(message["source"])
        verdicts = await self._registry.grade(
            message["key"], source, message["items"], seconds=message["seconds"], max_losses=message["max_losses"]
        )
        return {"verdicts": [wires.verdict_out(verdict) for verdict in verdicts]}

    async def _code(self, message: dict[str, Any]) -> dict[str, Any]:
        tests = [wires.test_in(raw) for raw in message["tests"]]
        outcomes = await self._registry.run_code(message["code"], tests, seconds=message["seconds"])
        return {"outcomes": [asdict(outcome) for outcome in outcomes]}

    async def _program(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"ran": asdict(await self._registry.run_program(message["code"], seconds=message["seconds"]))}

    async def _output(self, message: dict[str, Any]) -> dict[str, Any]:
        return asdict(self._registry.output(message["key"], self._sources.get(message["source"], "")))

    def _keep(self, name: str, text: str) -> None:
        self._sources[name] = text
        self._sources_bytes += len(text)
        while self._sources_bytes > _KEPT_SOURCES_BYTES and len(self._sources) > 1:
            _, gone = self._sources.popitem(last=False)
            self._sources_bytes -= len(gone)
