"""The manager dies at each named point of a step while the live sampler samples; what the next one does is what was due.

With recorded rollouts, and with SIGKILL, down to the bytes: ``tests/engine/test_killed.py``.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.audit import audit
from engine.data import step_rows
from engine.rewards.pool import GraderPool
from engine.rollout.sampling import completion_seed
from engine.trajectory import decode
from tests.engine.crashes import Died, dies_at
from tests.engine.killed import GROUP, POINTS, PROMPTS, STEPS, LocalTrainer, Reached, submission
from tests.engine.world import World

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]


class Marked:
    """The real sampler and the real graders; each call to them passes a point."""

    def __init__(self, sampler: Any, reached: Reached):
        self._sampler, self._grading, self._reached = sampler, GraderPool(), reached
        self.died, self.load, self.unload, self.stats = sampler.died, sampler.load, sampler.unload, sampler.stats

    async def sample(self, *order: Any) -> Any:
        self._reached("rollout:sampling")
        return await self._sampler.sample(*order)

    async def grade(self, *order: Any, **case: Any) -> Any:
        self._reached("reward:grading")
        return await self._grading.grade(*order, **case)


async def open_manager(world: World, sampler: Any, base: Any, trainer: Any, reached: Reached) -> None:
    from engine.rollout.tokens import ModelTokens
    from engine.rollout.worker import RolloutWorker

    marked = Marked(sampler, reached)
    world.rollout = RolloutWorker(sampler=marked, tokens=ModelTokens.load(base.path), grading=marked)
    world.train = LocalTrainer(trainer, reached)
    await world.open(crash_at=reached)


async def die(world: World, job: str) -> bool:
    """Whether the manager died before the job's end."""
    try:
        await world.manager.submit(job, submission(world))
    except Died:
        return True
    ended = asyncio.create_task(world.seen(job, "ended"))
    await asyncio.wait([ended, world.manager.failed], return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    await world.manager._driver.stop()
    return world.manager.failed.done()


def what_was_due() -> list[tuple[int, list[tuple[int, int, int, int]]]]:
    """(version, row, sample, seed and version of every completion that it is trained on) of every step: nothing but seed and spec."""
    return [
        (
            version + 1,
            [
                (row, sample, completion_seed(0, version, row, sample), version)
                for row in step_rows(20, PROMPTS, 0, version)
                for sample in range(GROUP)
            ],
        )
        for version in range(STEPS)
    ]


def what_was_done(world: World, job: str) -> list[tuple[int, list[tuple[int, int, int, int]]]]:
    found = []
    for event in world.events(job, "step"):
        data = event.data
        batch = decode(world.manager._store.read_rollout(job, data["trained_from"], data["attempt"]))
        found.append((data["version"], [(t.row, t.sample, t.seed, t.policy_version) for t in batch.trajectories]))
    return found


@pytest.mark.parametrize("point", POINTS)
async def test_the_next_manager_samples_the_rows_seeds_and_versions_that_were_due(sampler, base, one_rank, tmp_path, point):
    from engine.train.worker import TrainWorker

    world, trainer, job = World(tmp_path), TrainWorker(base.path), f"live-{list(POINTS).index(point)}"
    await open_manager(world, sampler, base, trainer, dies_at(point, nth=POINTS[point]))
    assert await die(world, job)

    await open_manager(world, sampler, base, TrainWorker(base.path), lambda name: None)
    ended = (await world.ended(job))[job]
    done = what_was_done(world, job)
    await world.manager.stop()

    assert (ended["state"], ended["version"]) == ("succeeded", STEPS)
    assert done == what_was_due()
    assert audit(world.root / "engine") == []
