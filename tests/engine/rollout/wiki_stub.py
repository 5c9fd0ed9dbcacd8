"""A MediaWiki endpoint on a socket of its own that answers well, late, with a failure, or never."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

BODY = json.dumps({"query": {"search": [{"title": "Moss", "snippet": "grows on stones"}]}}).encode()


@asynccontextmanager
async def wiki_stub(mode: str, *, hold: asyncio.Event | None = None, waiting: list[str] | None = None) -> AsyncIterator[str]:
    """The URL of its api.php. ``mode``: "well", "failing" (503) or "silent". Nothing is answered before ``hold`` is set; what is asked
    is added to ``waiting``.
    """
    open_connections, over = set[asyncio.Task](), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.add(asyncio.current_task())
        asked = await reader.readuntil(b"\r\n\r\n")
        if waiting is not None:
            waiting.append(asked.split(b"\r\n")[0].decode())
        if hold is not None:
            await hold.wait()
        if mode == "silent":
            await over.wait()
        status, body = (b"200 OK", BODY) if mode == "well" else (b"503 Unavailable", b"")
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/w/api.php"
    finally:
        server.close()
        over.set()
        await asyncio.gather(*open_connections, return_exceptions=True)
