from __future__ import annotations

import pytest

from engine.runtime.cluster import joined_address
from engine.runtime.readiness import StartFailed

OPEN = {"RAY_ADDRESS": "10.0.0.1:6379"}
GUARDED = {**OPEN, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "t"}


@pytest.mark.parametrize(
    ("environment", "production", "address"),
    [({}, True, None), ({"RAY_ADDRESS": ""}, True, None), (GUARDED, True, "10.0.0.1:6379"), (OPEN, False, "10.0.0.1:6379")],
)
def test_the_engine_runs_on_its_own_ray_or_on_the_one_that_is_named(environment, production, address):
    assert joined_address(environment, production=production) == address


def test_in_production_a_cluster_that_lets_anybody_in_is_refused_with_the_way_out():
    with pytest.raises(StartFailed, match="RAY_AUTH_MODE=token"):
        joined_address(OPEN, production=True)
