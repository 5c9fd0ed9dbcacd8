import asyncio

import pytest

pytestmark = pytest.mark.engine


async def test_a_cancellation_that_comes_together_with_the_answer_still_cancels():
    from engine.runtime.calls import answer

    ref = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(answer(ref, deadline_seconds=60.0, what="a call"))
    await asyncio.sleep(0)

    ref.set_result("too late")
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_answer_that_never_comes_is_overdue():
    from engine.runtime.calls import Overdue, answer

    with pytest.raises(Overdue, match="a call did not answer within"):
        await answer(asyncio.get_running_loop().create_future(), deadline_seconds=0.01, what="a call")
