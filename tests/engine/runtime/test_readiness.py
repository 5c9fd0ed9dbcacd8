from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from engine.runtime.readiness import Readiness


def test_it_is_ready_when_every_part_is():
    readiness = Readiness({"sampler": "loading", "trainer": "loading too"})
    readiness.set("sampler", None)
    assert (readiness.health().ok, readiness.health().stage) == (False, "loading too")

    readiness.set("trainer", None)

    assert readiness.health().ok


async def test_a_waiter_wakes_at_the_change():
    readiness = Readiness({"sampler": "loading"})
    waiter = asyncio.create_task(readiness.next(readiness.health().revision, wait_seconds=30))
    await asyncio.sleep(0)

    readiness.set("sampler", None)

    assert (await waiter).ok


async def test_a_waiter_gets_the_present_state_when_nothing_changes():
    readiness = Readiness({"sampler": "loading"})
    revision = readiness.health().revision

    assert (await readiness.next(revision, wait_seconds=0.01)).revision == revision


def test_the_same_stage_again_is_no_change():
    readiness = Readiness({"sampler": "loading"})
    revision = readiness.health().revision

    readiness.set("sampler", "loading")

    assert readiness.health().revision == revision


def test_a_failure_is_told_until_the_part_comes_up():
    readiness = Readiness({"sampler": "loading"})
    readiness.set("sampler", "loading", failure="no such model")
    assert readiness.health().failure == "no such model"

    readiness.set("sampler", None)

    assert readiness.health().failure is None


class Clock:
    def __init__(self) -> None:
        self.minutes = 0

    def __call__(self) -> datetime:
        return at(self.minutes)


def at(minutes: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)


def test_a_part_that_was_lost_is_told_since_then_until_it_is_back():
    clock = Clock()
    readiness = Readiness({"sampler": None, "trainer": None}, clock=clock)
    clock.minutes = 3
    readiness.set("sampler", "loading")
    clock.minutes = 4
    readiness.set("sampler", "loading", failure="no memory")
    assert readiness.stopped() == {"sampler": at(3)}

    readiness.set("sampler", None)

    assert readiness.stopped() == {}


def test_a_kind_of_part_has_stopped_when_the_last_of_it_has():
    clock = Clock()
    readiness = Readiness({"trainer": None, "trainer 2": None}, clock=clock)
    readiness.set("trainer 2", "loading")
    assert readiness.stopped() == {}

    clock.minutes = 5
    readiness.set("trainer", "loading")

    assert readiness.stopped() == {"trainer": at(5)}
