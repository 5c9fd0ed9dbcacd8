"""What is tried again, and what is not."""

from __future__ import annotations

import pytest

from engine.ports import Aborted, PortError
from engine.stubborn import stubbornly


class Calls:
    """Fails with each of ``failures`` in turn, then answers."""

    def __init__(self, *failures: Exception):
        self.failures, self.made, self.heard = list(failures), 0, []

    async def __call__(self) -> str:
        self.made += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"

    async def tried(self, tries: int, **more) -> str:
        return await stubbornly(self, tries=tries, on_failure=lambda error: self.heard.append(error.reason), **more)


async def test_a_failure_of_the_platform_is_tried_again_and_told():
    calls = Calls(PortError("one"), PortError("two"))
    assert await calls.tried(3) == "answer"
    assert (calls.made, calls.heard) == (3, ["one", "two"])


async def test_the_last_failure_is_raised():
    calls = Calls(PortError("one"), PortError("two"))
    with pytest.raises(PortError, match="two"):
        await calls.tried(2)
    assert (calls.made, calls.heard) == (2, ["one"])


@pytest.mark.parametrize("failure", [PortError("a bad row", attribution="user"), Aborted("stopped"), ValueError("a fault of ours")])
async def test_what_trying_cannot_mend_is_raised_at_once(failure):
    calls = Calls(failure)
    with pytest.raises(type(failure)):
        await calls.tried(3, final=(Aborted,))
    assert (calls.made, calls.heard) == (1, [])


async def test_an_abort_is_tried_again_unless_it_is_final():
    assert await Calls(Aborted("stopped")).tried(2) == "answer"
