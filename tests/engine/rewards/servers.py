"""Small HTTP servers on the loopback for graders that speak to endpoints: they note what they are asked and answer from a script."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class Asked:
    line: str
    headers: dict[str, str]
    body: bytes


@dataclass(kw_only=True)
class Server:
    """``answers`` from the number of the request, from 0, to the raw bytes of the answer; None never answers."""

    answers: Callable[[int], bytes | None]
    asked: list[Asked] = field(default_factory=list)
    port: int = 0

    @contextlib.asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.asked.append(Asked(line=head[0], headers=headers, body=body))
        answer = self.answers(len(self.asked) - 1)
        if answer is not None:
            with contextlib.suppress(ConnectionError):
                writer.write(answer)
                await writer.drain()
        else:
            await reader.read()
        writer.close()


def http(body: bytes, status: int = 200, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Names:
    """A name service that gives the next of ``answers`` each time it is asked, and the last one from then on."""

    def __init__(self, *answers: list[str]):
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
