"""Making a reward is everyday work: it needs no administrator, only somebody who may change something at all."""

from __future__ import annotations

import pytest

from portal.rewards.actions import create_reward
from tenants.access import Forbidden
from tests.portal.world import World


def test_a_member_who_is_no_administrator_makes_a_reward(world: World) -> None:
    reward = create_reward(world.sums, world.bob, "exact", {"type": "string_check"})

    assert (reward.tenant, reward.created_by) == (world.sums, world.bob)


def test_a_viewer_makes_none(world: World) -> None:
    with pytest.raises(Forbidden):
        create_reward(world.sums, world.vera, "exact", {"type": "string_check"})
    assert not world.sums.rewards.exists()
