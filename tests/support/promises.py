"""What an outage must leave behind: the promises I1 to I10, held against an installation's database, its disk and its history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any

from engine import audit
from tests.portal.test_stack import Person, follow, whole
from tests.support.house import House

Seen = Callable[[], list[list[dict[str, Any]]]]


@contextmanager
def watching(person: Person, jobs: Sequence[str], *, seconds: float) -> Iterator[Seen]:
    """A page open on each job all the while. Called when they have ended, it gives each job's events as its socket brought them."""
    assert person.session
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    watched = asyncio.run_coroutine_threadsafe(_all_of(person, jobs, seconds), loop)
    try:
        yield lambda: watched.result(60)
    finally:
        watched.cancel()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


async def _all_of(person: Person, jobs: Sequence[str], seconds: float) -> list[list[dict[str, Any]]]:
    return await asyncio.gather(*(follow(person, job, seconds=seconds) for job in jobs))


def all_kept(house: House, person: Person, jobs: Sequence[str], steps: int, seen: Seen) -> None:
    """Of ``jobs``, all of which have ended. Stops the installation: its disk is looked at when it is quiet.

    The history has no gap (I1, I10) and came to the watchers whole (I10); database and engine know the same; each step is billed once
    (I4); nothing is held, open or unanswered (I6, I8, I9); versions and batches on disk are what the journal says (I1, I2, I3, I8).
    """
    for job in jobs:
        whole(person, job, steps)
    assert seen() == [person.events(job) for job in jobs]
    books_are_sound(house)
    assert {(job, step) for job, step, *_ in billed(house)} >= {(job, step) for job in jobs for step in range(1, steps + 1)}
    assert house.rows("SELECT sum(micros), count(*) FILTER (WHERE closed_at IS NULL) FROM billing_hold") == [(0, 0)]
    assert house.rows("SELECT count(*) FROM billing_account WHERE held_micros <> 0") == [(0,)]
    assert house.rows("SELECT count(*) FROM jobs_jobsubmission WHERE answered_at IS NULL") == [(0,)]
    house.stop()
    assert audit.audit(house.engine.engine_dir) == []


def books_are_sound(house: House) -> None:
    assert ", 0 differences" in (found := house.manage("compare_engine")), found
    assert "0 unsound" in (found := house.manage("check_billing")), found
    assert {count for _, _, _, count, _ in billed(house)} == {1}, "a step is billed once for each kind"


def billed(house: House) -> list[tuple[Any, ...]]:
    """(job, step, kind, number of entries, micros) of everything that jobs were charged, in order."""
    return house.rows(
        "SELECT source, step, kind, count(*), sum(amount_micros) FROM billing_entry WHERE source_type = 'job' AND amount_micros <> 0"
        " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    )
