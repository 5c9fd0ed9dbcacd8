"""A private Ray on 127.0.0.1 for one engine: no dashboard, no log monitor, no autoscaler, a small object store, a token nobody else has.

Uses Ray's ``Node`` directly, as ``ray.cluster_utils`` does. ``ray.init`` would start three more Python processes (290 MB, two seconds of
CPU), and would replace 127.0.0.1 by an address that the network can reach.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import ray
from ray._private import worker as ray_worker
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray._raylet import AuthenticationTokenLoader, Config

from engine.runtime.cluster import joined_address
from engine.runtime.names import NAMESPACE
from engine.settings import REPOSITORY, EngineSettings

LOOPBACK = "127.0.0.1"

_SYSTEM_CONFIG = {
    "enable_worker_prestart": False,  # idle workers cost 90 MB each
    "prestart_worker_first_driver": False,
    "memory_monitor_refresh_ms": 0,  # Ray must not kill an actor because a neighbour filled the machine
    "task_events_report_interval_ms": 0,
    "worker_niceness": 0,  # each actor chooses its own (see process.enter)
    "max_direct_call_object_size": 2**20,  # a small adapter travels inside the call: 1 ms instead of 3 by way of the object store
    "grpc_client_check_connection_status_interval_milliseconds": 100,  # how soon a killed process is noticed
}


class _QuietNode(Node):
    def start_api_server(self, **_: Any) -> None:
        """No dashboard."""

    def start_log_monitor(self) -> None:
        """Actors write their own log files."""


def environment(tag: str) -> dict[str, str]:
    """What every process of this run inherits."""
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    return {
        "MARLAAS_RUN": tag,
        "PYTHONPATH": path,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _adopt(variables: dict[str, str]) -> None:
    """Into this process's environment; Ray's library has read it at import, and must do so again for its token."""
    os.environ.update(variables)
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


class LocalRay:
    """Owns the processes it started. They get a parent-death signal, so they end with this process, however it ends."""

    def __init__(self, node: Node, directory: Path):
        self._node = node
        self._directory = directory

    @classmethod
    def start(cls, settings: EngineSettings, tag: str) -> LocalRay:
        directory = settings.runtime_dir / "ray"
        shutil.rmtree(directory, ignore_errors=True)  # sessions of runs that were killed
        _adopt(environment(tag))
        params = RayParams(
            node_ip_address=LOOPBACK,
            num_cpus=1,
            resources={name: 1.0 for name in (settings.rollout_nodes, settings.train_nodes) if name},  # there is no other node to mark
            object_store_memory=settings.object_store_mb * 2**20,
            temp_dir=str(directory),
            include_dashboard=False,
            include_log_monitor=False,
            no_monitor=True,
            dashboard_agent_listen_port=0,
            _system_config=_SYSTEM_CONFIG,
        )
        node = _QuietNode(params, head=True, shutdown_at_exit=False, spawn_reaper=True, ray_init_cluster=True)
        # Ray resolves a loopback address to this node's own, which is the loopback again once the node is known.
        ray_worker._global_node = node
        ray.init(address=node.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        return cls(node, directory)

    def process_ids(self) -> list[int]:
        """Ray's own daemons: when one of them dies, this Ray is dead."""
        return [info.process.pid for infos in self._node.all_processes.values() for info in infos]

    def stop(self) -> None:
        ray.shutdown()
        self._node.kill_all_processes(check_alive=False, allow_graceful=False)
        shutil.rmtree(self._directory, ignore_errors=True)


class JoinedRay:
    """A cluster that somebody else runs (``RAY_ADDRESS``). Only our actors are ours to stop; its nodes must have this code installed."""

    def __init__(self, address: str, tag: str):
        variables = {name: value for name, value in environment(tag).items() if not name.startswith("RAY_")}
        runtime = {"env_vars": variables}
        ray.init(address=address, namespace=NAMESPACE, runtime_env=runtime, log_to_driver=False, configure_logging=False)

    def process_ids(self) -> list[int]:
        return []

    def stop(self) -> None:
        ray.shutdown()


def start_or_join(settings: EngineSettings, tag: str) -> LocalRay | JoinedRay:
    """Raises ``StartFailed``: see ``cluster.joined_address``."""
    address = joined_address(os.environ, production=settings.production)
    return JoinedRay(address, tag) if address else LocalRay.start(settings, tag)
