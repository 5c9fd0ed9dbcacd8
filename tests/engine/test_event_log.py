from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from engine.epoch import claim
from engine.event_log import EventLog
from engine.journal import Journal
from tests.engine.crashes import Died, dies_at

AT = datetime(2026, 1, 1, tzinfo=UTC)
pytestmark = pytest.mark.asyncio


def open_log(root, **kwargs) -> EventLog:
    journal_kwargs = {"crash_at": kwargs.pop("crash_at")} if "crash_at" in kwargs else {}
    return EventLog(Journal(root / "journal", claim(root), **journal_kwargs), **kwargs)


async def test_an_appended_event_is_durable_when_append_returns(tmp_path):
    log = open_log(tmp_path)
    event = await log.append("job_a", "accepted", {"n": 1}, at=AT)
    assert open_log(tmp_path).journal.read_after(0, 10) == [event]


async def test_posted_events_keep_their_order_and_share_a_write(tmp_path):
    log = open_log(tmp_path)
    for n in range(5):
        log.post("job_a", "warning", {"n": n}, at=AT)
    await log.drain()
    assert [event.data["n"] for event in log.journal.read_after(0, 10)] == [0, 1, 2, 3, 4]


async def test_a_long_poll_returns_the_moment_an_event_arrives(tmp_path):
    log = open_log(tmp_path)
    poll = asyncio.create_task(log.read_after(0, wait_seconds=3600, limit=10))
    event = await log.append("job_a", "accepted", {}, at=AT)
    assert await poll == [event]


async def test_a_long_poll_wakes_only_for_what_lies_behind_its_cursor(tmp_path):
    log = open_log(tmp_path)
    poll = asyncio.create_task(log.read_after(1, wait_seconds=3600, limit=10))
    await log.append("job_a", "accepted", {}, at=AT)
    second = await log.append("job_a", "waiting", {}, at=AT)
    assert await poll == [second]


async def test_a_long_poll_that_gathers_brings_what_comes_close_behind_the_first(tmp_path):
    log = open_log(tmp_path)
    poll = asyncio.create_task(log.read_after(0, wait_seconds=0.2, limit=10, gather_seconds=3600))
    both = [await log.append("job_a", kind, {}, at=AT) for kind in ("accepted", "waiting")]
    assert await poll == both


async def test_a_poll_that_finds_events_gathers_no_more(tmp_path):
    log = open_log(tmp_path)
    event = await log.append("job_a", "accepted", {}, at=AT)
    assert await log.read_after(0, wait_seconds=3600, limit=10, gather_seconds=3600) == [event]


async def test_a_poll_without_news_ends_empty_after_its_wait(tmp_path):
    assert await open_log(tmp_path).read_after(0, wait_seconds=0, limit=10) == []


async def test_a_failed_write_reaches_the_waiter_the_owner_and_every_later_post(tmp_path):
    failures: list[BaseException] = []
    log = open_log(tmp_path, crash_at=dies_at("journal:written"), on_failure=failures.append)
    with pytest.raises(Died):
        await log.append("job_a", "accepted", {}, at=AT)
    assert [type(error) for error in failures] == [Died]
    with pytest.raises(Died):
        log.post("job_a", "accepted", {}, at=AT)


async def test_a_waiter_that_is_cancelled_does_not_stop_the_log(tmp_path):
    log = open_log(tmp_path)
    waiter = log.post("job_a", "accepted", {}, at=AT)
    waiter.cancel()
    second = await log.append("job_a", "waiting", {}, at=AT)
    assert second.offset == 2
