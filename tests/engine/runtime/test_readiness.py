from __future__ import annotations

import asyncio

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
