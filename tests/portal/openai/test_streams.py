"""Whoever reads an answer, or does not: what was sampled is billed once, while what it may cost is still held."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from portal.billing.models import Account, Entry, Hold
from portal.openai import chats, streams
from portal.openai.models import Chat
from tests.portal.fake_engine import FakeEngine
from tests.portal.openai.callers import Caller, bill, events, in_thread, post

pytestmark = pytest.mark.django_db(transaction=True)


class Held(asyncio.Event):
    """``reached``: the engine has told all tokens, and waits before it says that these were all."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def wait(self) -> Any:
        self.reached.set()
        return await super().wait()


@pytest.fixture
def held(engine: FakeEngine) -> Held:
    engine.chat_hold = Held()
    return engine.chat_hold


async def ended() -> Chat:
    async with asyncio.timeout(30):
        while (chat := await Chat.objects.select_related("tenant", "job").aget()).state == "open":
            pass
    assert (await Hold.objects.aget()).closed_at is not None and (await Account.objects.aget()).held_micros == 0
    return chat


async def sampled(chat: Chat) -> tuple[int, int]:
    return (await in_thread(bill, chat))["sampled"]


async def test_a_client_that_leaves_pays_for_what_had_come(client: Caller, held: Held) -> None:
    answer = await post(client, stream=True)
    parts = aiter(answer.streaming_content)
    for _ in range(3):
        await anext(parts)
    await parts.aclose()
    await in_thread(answer.close)
    chat = await ended()
    assert chat.state == "left"
    assert 1 <= (await sampled(chat))[0] <= 2


async def test_a_client_that_leaves_before_it_read_anything_pays_for_what_had_come(client: Caller, held: Held) -> None:
    answer = await post(client, stream=True)
    await held.reached.wait()
    await in_thread(answer.close)
    chat = await ended()
    assert (chat.state, await sampled(chat)) == ("left", (2, 1))


async def test_a_client_that_leaves_an_answer_at_its_very_beginning_leaves_nothing_open(client: Caller, engine: FakeEngine) -> None:
    begun = streams.Reading

    class Left(begun):
        def __init__(self, *args: Any):
            super().__init__(*args)
            self.leave()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("portal.openai.chat_views.Reading", Left)
        await post(client, stream=True)
    assert (await ended()).state == "left"


async def test_an_answer_that_nobody_reads_is_billed_when_the_model_is_done(client: Caller) -> None:
    answer = await post(client, stream=True, stream_options={"include_usage": True})
    chat = await ended()
    assert (chat.state, await sampled(chat)) == ("done", (2, 1))
    assert (await events(answer))[-1]["usage"]["completion_tokens"] == 2
    assert await Entry.objects.filter(source_type="chat").acount() == 3


async def test_an_answer_that_waits_too_long_to_be_read_ends_and_is_billed(client: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_UNREAD", 4)
    answer = await post(client, stream=True)
    chat = await ended()
    assert (chat.state, (await sampled(chat))[0]) == ("left", 2)
    assert "did not read" in (await events(answer, last=""))[-1]["error"]["message"]


async def test_a_client_that_does_not_wait_for_a_whole_answer_pays_for_what_had_come(client: Caller, held: Held) -> None:
    asking = asyncio.create_task(post(client))
    await held.reached.wait()
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    chat = await ended()
    assert (chat.state, await sampled(chat)) == ("left", (2, 1))


async def test_an_answer_whose_web_process_died_costs_nothing_and_is_not_open_for_ever(client: Caller, held: Held) -> None:
    answer = await post(client, stream=True)
    chat = await Chat.objects.aget()
    late = chat.created_at + chats.LASTS
    assert [await in_thread(chats.sweep, late + timedelta(seconds=second)) for second in (0, 1, 1)] == [0, 1, 0]
    assert (await ended()).state == "failed"
    held.set()
    await events(answer)
    assert not await Entry.objects.filter(source_type="chat").aexists()
