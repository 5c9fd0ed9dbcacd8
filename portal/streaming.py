"""Bytes that are made while they are sent: nothing of them is held whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, BinaryIO

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

CHUNK_BYTES = 64 * 1024


def body(request: HttpRequest, chunks: Iterator[bytes]) -> Any:
    """``chunks`` as a streaming response takes them. Under ASGI Django would first collect an ordinary iterator whole."""
    return _later(chunks) if isinstance(request, ASGIRequest) else chunks


def chunks_of(file: BinaryIO) -> Iterator[bytes]:
    """All of ``file``, which is closed in the end."""
    with file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def gathered(lines: Iterable[str]) -> Iterator[bytes]:
    """``lines`` in chunks: each chunk is a hop between threads, which a line alone is not worth."""
    held, size = [], 0
    for line in lines:
        held.append(encoded := line.encode())
        size += len(encoded)
        if size >= CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


async def _later(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each in the request's own thread, whose database connection is closed with the request."""
    while (chunk := await sync_to_async(next)(chunks, None)) is not None:
        yield chunk
