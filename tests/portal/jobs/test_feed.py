from __future__ import annotations

import asyncio
import json

from portal.jobs.feed import Feed


class Table:
    """Rows that can be read slowly: a read sees what was there when it began."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.reads = 0
        self.go_on = asyncio.Event()

    async def fetch(self, job: int, seq: int) -> list[dict]:
        self.reads += 1
        seen = [{"seq": row} for row in self.rows if row > seq]
        await self.go_on.wait()
        return seen


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_watchers_at_the_same_number_share_a_read() -> None:
    table = Table()
    table.rows = [1, 2]
    feed = Feed(table.fetch)
    waiting = [asyncio.create_task(feed.after(7, 0)) for _ in range(200)]
    await turns()
    table.go_on.set()
    answers = await asyncio.gather(*waiting)
    assert {answer[1] for answer in answers} == {2}
    assert json.loads(answers[0][0]) == {"type": "events", "events": [{"seq": 1}, {"seq": 2}], "last": 2}
    assert table.reads <= 2


async def test_a_row_that_came_during_a_read_is_not_missed() -> None:
    table = Table()
    feed = Feed(table.fetch)
    early = asyncio.create_task(feed.after(7, 0))
    await turns()
    table.rows.append(1)  # and its wake-up reaches a second watcher
    late = asyncio.create_task(feed.after(7, 0))
    await turns()
    table.go_on.set()
    assert await early is None
    assert (await late)[1] == 1


async def test_other_jobs_and_numbers_are_read_apart() -> None:
    table = Table()
    table.rows, _ = [1, 2, 3], table.go_on.set()
    feed = Feed(table.fetch)
    assert [(await feed.after(job, seq))[1] for job, seq in ((1, 0), (2, 0), (1, 2))] == [3, 3, 3]
    assert (table.reads, await feed.after(1, 3)) == (3, None)


async def test_a_failed_read_fails_its_watcher_and_no_later_one() -> None:
    table = Table()
    table.rows, _ = [1], table.go_on.set()
    broken = [True]

    async def fetch(job: int, seq: int) -> list[dict]:
        if broken.pop() if broken else False:
            raise OSError("gone")
        return await table.fetch(job, seq)

    feed = Feed(fetch)
    first, second = await asyncio.gather(feed.after(1, 0), feed.after(1, 0), return_exceptions=True)
    assert isinstance(first, OSError)
    assert second[1] == 1


async def test_nothing_is_kept_when_nobody_waits() -> None:
    table = Table()
    table.go_on.set()
    feed = Feed(table.fetch)
    for seq in range(50):
        await feed.after(1, seq)
    assert len(feed._reads) == 0
