from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404
from django.test import AsyncRequestFactory, RequestFactory

from portal import gateway
from portal.jobs.downloads import CHUNK_BYTES, adapter_response
from portal.jobs.models import Job

JOB = Job(public_id="job_x")


class Slow(httpx.SyncByteStream):
    """An archive that comes in pieces; counts how far it was read and whether it was closed."""

    def __init__(self, pieces: int):
        self.pieces, self.read, self.closed = pieces, 0, False

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self.pieces):
            self.read += 1
            yield b"x" * CHUNK_BYTES

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def stream(settings) -> Iterator[Slow]:
    slow = Slow(100)
    settings.ENGINE_TRANSPORT = httpx.MockTransport(lambda _: httpx.Response(200, stream=slow, headers={"X-Policy-Version": "3"}))
    settings.ENGINE_URL = "http://engine"
    gateway.forget()
    yield slow
    gateway.forget()


async def open_async() -> object:
    request = AsyncRequestFactory().get("/")
    assert isinstance(request, ASGIRequest)
    return await sync_to_async(adapter_response)(request, JOB, "latest")


async def test_under_asgi_it_is_passed_on_piece_by_piece(stream: Slow) -> None:
    response = await open_async()
    pieces = aiter(response)
    assert len(await anext(pieces)) == CHUNK_BYTES
    assert stream.read <= 2
    assert len([piece async for piece in pieces]) == 99


async def test_a_client_that_leaves_frees_the_engines_connection(stream: Slow) -> None:
    response = await open_async()
    await anext(aiter(response))
    await sync_to_async(response.close)()  # as Django's handler does
    assert stream.closed
    assert stream.read < 100


def test_outside_asgi_it_is_an_ordinary_stream(stream: Slow) -> None:
    response = adapter_response(RequestFactory().get("/"), JOB, "3")
    assert sum(map(len, response.streaming_content)) == 100 * CHUNK_BYTES
    assert stream.closed


def test_no_such_version_is_a_404(settings) -> None:
    settings.ENGINE_TRANSPORT = httpx.MockTransport(lambda _: httpx.Response(404, json={}))
    gateway.forget()
    with pytest.raises(Http404):
        adapter_response(RequestFactory().get("/"), JOB, "9")
    gateway.forget()
