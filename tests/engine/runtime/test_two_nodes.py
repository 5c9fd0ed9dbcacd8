"""The engine over two raylets on this machine, each on a loopback address of its own: what one node's death costs is work, not jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.engines import TestEngine, running_engine, wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(420)]
FIRST, SECOND = "127.0.0.1", "127.0.0.2"
MARK = "marlaas_second"  # what only the second node offers
FAKES = "tests.engine.runtime.fake_engine"


class SecondNode:
    """A raylet that joined the cluster of ``local_ray``, as ``ray start --address`` on a machine of its own would."""

    def __init__(self, gcs_address: str, folder: str):
        from ray._private.parameter import RayParams

        from engine.runtime.local_ray import _QuietNode

        params = RayParams(
            gcs_address=gcs_address,
            redis_address=gcs_address,
            node_ip_address=SECOND,
            node_manager_port=0,
            num_cpus=1,
            resources={MARK: 1},
            object_store_memory=80 * 2**20,
            temp_dir=folder,
            include_log_monitor=False,
            dashboard_agent_listen_port=0,
            min_worker_port=0,
            max_worker_port=0,
        )
        self._node = _QuietNode(params, head=False, shutdown_at_exit=False, spawn_reaper=False)

    def die(self) -> None:
        """At once, as when its machine loses power: the raylet and all that ran under it."""
        daemons = [info.process.pid for infos in self._node.all_processes.values() for info in infos]
        for pid in [*daemons, *(child for daemon in daemons for child in _descendants(daemon))]:
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        self._node.kill_all_processes(check_alive=False, allow_graceful=False)


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [found for child in children for found in (child, *_descendants(child))]


def nodes_of_actors() -> dict[str, str]:
    """Actor → the address of its node, of those that are alive."""
    import ray
    from ray._private.state import actors

    addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    return {a["Name"]: addresses[a["Address"]["NodeID"]] for a in actors().values() if a["State"] == "ALIVE" and a["Name"]}


@pytest.fixture
def second(local_ray: None) -> Iterator[SecondNode]:
    import ray

    def alive() -> int:
        return sum(node["Alive"] for node in ray.nodes())

    with tempfile.TemporaryDirectory(prefix="mr2-", dir="/tmp") as folder:
        node = SecondNode(ray.get_runtime_context().gcs_address, folder)
        assert wait_until(lambda: alive() == 2)
        yield node
        node.stop()
        assert wait_until(lambda: alive() == 1, seconds=60)


def cluster() -> dict[str, str]:
    import ray

    return {"RAY_ADDRESS": ray.get_runtime_context().gcs_address, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@pytest.fixture
def engine(second: SecondNode, tmp_path: Path) -> Iterator[TestEngine]:
    slow = {"FAKE_SAMPLER_SECONDS": "0.3", "FAKE_STEP_SECONDS": "0.3"}
    many = {"rollout_replicas": 2, "train_ranks": 2, "train_spread": "spread", "rollout_cores": "", "train_cores": ""}
    with running_engine(tmp_path, module=FAKES, environment={**slow, **cluster()}, **many) as engine:
        yield engine


def whole(views: dict[str, Any]) -> bool:
    """Each job succeeded, each of its versions was committed once."""
    return all(
        view.state == "succeeded" and [data["version"] for data in view.committed] == list(range(1, view.steps + 1))
        for view in views.values()
    )


def lost_on(engine: TestEngine, second: SecondNode, phase: str) -> tuple[dict[str, Any], list[str]]:
    """Three jobs, and their second node dies after the second step, as soon as one of them is in ``phase``."""
    died: list[str] = []

    def lose_it(view: Any) -> None:
        if not died and view.step >= 2:
            job = wait_for_phase(engine, phase)
            died.append(job)
            second.die()

    return engine.play(["add", "max", "reverse"], on_step=lose_it, steps=6), died


def wait_for_phase(engine: TestEngine, phase: str) -> str:
    import httpx

    headers = {"Authorization": f"Bearer {engine.settings.secret()}"}
    found: list[str] = []

    def there() -> bool:
        status = httpx.get(f"{engine.settings.engine_url}/status", headers=headers).json()
        found.extend(job["job"] for job in status["jobs"] if job["phase"] == phase)
        return bool(found)

    assert wait_until(there), f"no job came into {phase}"
    return found[0]


@pytest.mark.parametrize("phase", ["rollout", "training"])
def test_jobs_run_over_both_nodes_and_go_on_when_one_is_lost(engine: TestEngine, second: SecondNode, phase: str) -> None:
    placed = nodes_of_actors()
    assert {placed["manager"], placed["http"]} == {FIRST}
    assert {placed["rollout-0"], placed["rollout-1"]} == {placed["trainer-0"], placed["trainer-1"]} == {FIRST, SECOND}

    views, died = lost_on(engine, second, phase)

    assert died and whole(views)
    assert engine.run(engine.until_healthy())["ok"]
    assert set(nodes_of_actors().values()) == {FIRST}
    assert engine.violations() == []


@pytest.mark.soak
def test_the_real_engine_s_jobs_outlive_a_node(second: SecondNode, tmp_path: Path) -> None:
    many = {"rollout_replicas": 2, "train_ranks": 2, "train_spread": "spread", "rollout_cores": "", "train_cores": ""}
    with running_engine(tmp_path, environment=cluster(), start_deadline_seconds=240, **many) as engine:
        assert {nodes_of_actors()[f"{kind}-{n}"] for kind in ("rollout", "trainer") for n in (0, 1)} == {FIRST, SECOND}
        views, died = lost_on(engine, second, "rollout")
        assert died and whole(views)
        assert engine.violations() == []


def test_the_mark_of_a_node_decides_who_lies_there(second: SecondNode, tmp_path: Path) -> None:
    with running_engine(tmp_path, module=FAKES, environment=cluster(), rollout_nodes=MARK, rollout_cores="", train_cores="") as engine:
        placed = nodes_of_actors()
        assert (placed["rollout-0"], placed["manager"]) == (SECOND, FIRST)
        assert whole(engine.play(["add"]))


def test_who_has_no_token_is_not_let_in(local_ray: None) -> None:
    program = f"import ray; ray.init(address={cluster()['RAY_ADDRESS']!r}, log_to_driver=False); print('in', len(ray.nodes()))"
    friend = {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    tried = {
        who: subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False)
        for who, environment in {"friend": friend, "stranger": {**friend, "RAY_AUTH_TOKEN": "0" * 32}}.items()
    }
    assert tried["friend"].returncode == 0, tried["friend"].stderr[-2000:]
    assert tried["stranger"].returncode != 0 and "in " not in tried["stranger"].stdout
