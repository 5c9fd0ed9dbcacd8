from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.engine


class Group:
    """Stands for a ``TrainGroup`` that trains until ``done`` is set; its processes are not covered here."""

    def __init__(self) -> None:
        self.outstanding, self.done, self.took = 0, asyncio.Event(), []

    async def step(self, request: str) -> str:
        self.outstanding += 1
        self.took.append(request)
        await self.done.wait()
        self.outstanding -= 1
        return request


async def test_trainings_run_beside_one_another_on_groups_of_their_own():
    from engine.runtime.train_pool import TrainPool

    groups = [Group(), Group()]
    pool = TrainPool(groups)
    steps = []
    for request in ("a", "b"):
        steps.append(asyncio.create_task(pool.step(request)))
        await asyncio.sleep(0)

    assert [group.took for group in groups] == [["a"], ["b"]]
    groups[1].done.set()
    assert await steps[1] == "b"
    groups[0].done.set()
    await steps[0]


def test_the_first_group_keeps_its_old_names():
    from engine.runtime import names

    assert [names.train(0, 1), names.train(1, 0)] == ["trainer-1", "trainer-1-0"]
