"""What is sent while it is made, under ASGI, as it is served: Django warns of each answer that it has to collect whole first."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient

from portal.streaming import CHUNK_BYTES, gathered
from tests.portal.history import play
from tests.portal.world import World


async def fetched(world: World, address: str) -> tuple[Any, bytes]:
    client = AsyncClient()
    await sync_to_async(client.force_login)(world.alice)
    answer = await client.get(address)
    assert answer.streaming
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return answer, b"".join([chunk async for chunk in answer])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("address", "begins"),
    [
        ("/usage/daily.csv", b"day,"),
        ("/usage/entries.csv", b"id,"),
        ("/settings/audit.csv", b"at,actor_email"),
        ("/static/css/tokens.css", b"/*"),
    ],
)
async def test_nothing_is_collected_before_it_is_sent(world: World, settings: Any, address: str, begins: bytes) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    await sync_to_async(lambda: play(world.job(), steps=2))()
    answer, content = await fetched(world, address)
    assert (answer.status_code, content[: len(begins)]) == (200, begins)


@pytest.mark.django_db(transaction=True)
async def test_a_static_file_that_is_known_already_is_not_sent_again(world: World, settings: Any) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    first, _ = await fetched(world, "/static/css/tokens.css")
    assert (first["Content-Type"], int(first["Content-Length"]) > 0) == ('text/css; charset="utf-8"', True)
    again = await AsyncClient().get("/static/css/tokens.css", headers={"If-None-Match": first["ETag"]})
    assert again.status_code == 304


def test_lines_are_sent_many_at_a_time() -> None:
    lines = ["x" * 99 + "\n"] * 2000
    chunks = list(gathered(lines))
    assert b"".join(chunks) == "".join(lines).encode()
    assert [len(chunk) >= CHUNK_BYTES for chunk in chunks] == [True, True, True, False]
