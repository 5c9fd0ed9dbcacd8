from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
async def world(tmp_path: Path):
    """A manager that is open, over the fake ports. A module whose manager must be another has a ``world`` of its own."""
    from tests.engine.world import World  # here: the trainer's tests also run where the manager's packages are not installed

    world = World(tmp_path)
    await world.open()
    yield world
    await world.manager.stop()
