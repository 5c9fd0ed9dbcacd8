"""An engine on a Ray cluster that somebody else runs."""

from __future__ import annotations

import pytest

from tests.engine.engines import running_engine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

ACTORS = {"manager", "http", "rollout-0", "trainer-0"}


def _named_actors() -> set[str]:
    from ray.util import list_named_actors

    return {actor["name"] for actor in list_named_actors(all_namespaces=True)} & ACTORS


def test_it_runs_there_and_takes_only_its_own_actors_with_it(local_ray, tmp_path):
    import ray

    # Our test cluster listens on the loopback only, which Ray takes for another address unless it is told that there is but one node.
    cluster = {"RAY_ADDRESS": ray.get_runtime_context().gcs_address, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    with running_engine(tmp_path, module="tests.engine.runtime.fake_engine", environment=cluster) as engine:
        views = engine.play(["add", "max"])
        assert {view.state for view in views.values()} == {"succeeded"}
        assert _named_actors() == ACTORS

    assert _named_actors() == set()
    assert ray.is_initialized()
