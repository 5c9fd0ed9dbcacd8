"""Questions that tell whether a part is ready. Each answers within its own deadline and never raises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from deploy.supervisor import logs

PROBE_SECONDS = 10.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, kw_only=True)
class Health:
    """``ready``: may be used. ``answers``: alive, though perhaps still starting. ``note``: what it says about itself."""

    ready: bool
    answers: bool
    note: str = ""


# The argument is the length that the part's log had when the part was started.
Probe = Callable[[int], Awaitable[Health]]


def valkey(socket: Path) -> Probe:
    async def ask(_log_start: int) -> Health:
        answer = await _exchange(asyncio.open_unix_connection(str(socket)), b"PING\r\n", stop_at=b"\r\n")
        return Health(ready=answer.startswith(b"+PONG"), answers=bool(answer))

    return ask


def http(url: str) -> Probe:
    """Ready on 200. A JSON body's ``stage`` becomes the note."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    request = f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()

    async def ask(_log_start: int) -> Health:
        answer = await _exchange(asyncio.open_connection(host, port), request)
        head, _, body = answer.partition(b"\r\n\r\n")
        status = head.split(b" ", 2)[1] if head.startswith(b"HTTP/") else b""
        return Health(ready=status == b"200", answers=bool(status), note=_stage(body))

    return ask


def log_line(path: Path, marker: str) -> Probe:
    """Ready once ``marker`` stands in what the part wrote since it was started. Says nothing about its life after that."""

    async def ask(log_start: int) -> Health:
        return Health(ready=marker in logs.read_from(path, log_start), answers=True)

    return ask


async def _exchange(
    connecting: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]], request: bytes, stop_at: bytes = b""
) -> bytes:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            reader, writer = await connecting
            try:
                writer.write(request)
                return await (reader.readuntil(stop_at) if stop_at else reader.read())
            finally:
                writer.close()
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        return b""


def _stage(body: bytes) -> str:
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    return str(answer.get("stage", "")) if isinstance(answer, dict) else ""
