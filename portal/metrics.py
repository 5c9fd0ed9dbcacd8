"""What Prometheus is told, by every process of the portal. Each name here stands in deploy/OPERATORS.md; labels never name a tenant, a job
or a person, and take few values each.

Web, worker and ingester count what they do themselves. What the database knows of all of them, a web process answers at each scrape
(``metrics_state``).
"""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess, start_http_server
from prometheus_client.registry import REGISTRY

_QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOW = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)

requests = Counter("marlaas_http_requests", "Answered requests", ["method", "view", "status"])
request_seconds = Histogram("marlaas_http_request_seconds", "Time to the head of the answer", ["view"], buckets=_QUICK)
events = Counter("marlaas_ingest_events", "Events stored", ["kind"])
ingest_lag = Histogram("marlaas_ingest_lag_seconds", "From an event's moment to its row, of each page's newest", buckets=_SLOW)
ingest_failures = Counter("marlaas_ingest_failures", "Rounds of the ingester that failed and are tried again", ["why"])
tasks = Counter("marlaas_tasks", "Tasks of the worker that ended", ["task", "outcome"])
task_seconds = Histogram("marlaas_task_seconds", "Time that a task took", ["task"], buckets=_SLOW)

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNKNOWN = "other"


def count_request(method: str, view: str, status: int, seconds: float) -> None:
    """``view``: the route's name, never a path: paths have ids in them."""
    requests.labels(method if method in _METHODS else UNKNOWN, view or UNKNOWN, f"{status // 100}xx").inc()
    request_seconds.labels(view or UNKNOWN).observe(seconds)


def exposition() -> bytes:
    """Everything that this process counted, in Prometheus' text format."""
    return generate_latest(_counted(CollectorRegistry()))


def serve(port: int, host: str) -> None:
    """For processes that answer no HTTP of their own: a thread that answers every path with what was counted."""
    start_http_server(port, host, registry=_counted(CollectorRegistry()))


def _counted(registry: CollectorRegistry) -> CollectorRegistry:
    if os.environ.get(MULTIPROCESS):
        multiprocess.MultiProcessCollector(registry)
        return registry
    return REGISTRY
