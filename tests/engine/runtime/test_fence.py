from __future__ import annotations

import asyncio
import pickle

import pytest

from engine.runtime.fence import Fence, Superseded


async def _value(value):
    return value


async def test_the_newest_manager_is_served():
    fence = Fence()

    assert await fence.run(1, _value("one")) == "one"
    assert await fence.run(2, _value("two")) == "two"


async def test_an_older_manager_is_refused():
    fence = Fence()
    fence.claim(2)

    with pytest.raises(Superseded, match="epoch 1 has been followed by 2"):
        await fence.run(1, _value("late"))


async def test_a_new_manager_cancels_what_the_old_one_has_running():
    fence = Fence()
    cancelled = asyncio.Event()

    async def sampling():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    old = asyncio.create_task(fence.run(1, sampling()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    fence.claim(2)

    with pytest.raises(Superseded):
        await old
    assert cancelled.is_set()


async def test_a_cancelled_call_cancels_its_work_and_stays_cancelled():
    fence = Fence()
    call = asyncio.create_task(fence.run(1, asyncio.Event().wait()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call


def test_the_refusal_crosses_processes():
    copy = pickle.loads(pickle.dumps(Superseded(1, 2)))

    assert isinstance(copy, Superseded)
    assert copy.newest == 2
