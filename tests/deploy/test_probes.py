from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.supervisor import probes
from deploy.supervisor.probes import Health


async def answer(answers: bytes, ask: Callable[[int], probes.Probe]) -> Health:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n")
        writer.write(answers)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        return await ask(server.sockets[0].getsockname()[1])(0)


def healthz(port: int) -> probes.Probe:
    return probes.http(f"http://127.0.0.1:{port}/healthz")


@pytest.mark.parametrize(
    ("said", "health"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"ok": true}', Health(ready=True, answers=True)),
        (b'HTTP/1.1 503 No\r\n\r\n{"stage": "loading"}', Health(ready=False, answers=True, note="loading")),
        (b"HTTP/1.1 500 Oops\r\n\r\n<html>", Health(ready=False, answers=True)),
        (b"", Health(ready=False, answers=False)),
    ],
)
async def test_an_http_part_is_ready_on_200_and_says_what_it_is_doing_before(said: bytes, health: Health):
    assert await answer(said, healthz) == health


async def test_an_answer_that_comes_in_pieces_is_read_to_its_end(tmp_path: Path):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 No\r\n\r\n")
        await writer.drain()
        await asyncio.to_thread(heads.get)
        writer.write(b'{"stage": "loading"}')
        writer.close()

    heads: queue.Queue[None] = queue.Queue()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        asking = asyncio.create_task(healthz(server.sockets[0].getsockname()[1])(0))
        await asyncio.wait([asking], timeout=0.2)  # the head is there alone by now
        heads.put(None)
        assert (await asking).note == "loading"


async def test_a_port_where_nobody_listens_is_not_ready(free_port: Callable[[], int]):
    assert await healthz(free_port())(0) == Health(ready=False, answers=False)


async def test_a_missing_socket_is_not_ready(tmp_path: Path):
    assert not (await probes.valkey(tmp_path / "none.sock")(0)).ready


async def test_a_ready_line_of_an_earlier_start_counts_for_nothing(tmp_path: Path):
    log = tmp_path / "worker.log"
    log.write_text("worker ready\n")
    assert not (await probes.log_line(log, "worker ready")(log.stat().st_size)).ready
