"""The Celery application. It carries hints only: what has to be done is in rows, so a lost task is found by the sweeper."""

from __future__ import annotations

import os
import shutil
import time
from typing import Any

from celery import Celery, signals
from django_structlog.celery.steps import DjangoStructLogInitStep

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

app = Celery("portal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.steps["worker"].add(DjangoStructLogInitStep)
app.autodiscover_tasks()

_began: dict[str, float] = {}


@signals.worker_init.connect
def _serve_metrics(**_: Any) -> None:
    """Where a port is given. The pool's processes count in files that this one, which answers, adds up."""
    from django.conf import settings

    if not settings.ENV.metrics_port:
        return
    folder = settings.ENV.runtime_dir / "worker-metrics"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)  # read when the client is first imported, which is in the next line

    from portal import metrics

    metrics.serve(settings.ENV.metrics_port, settings.ENV.metrics_host)


@signals.worker_process_init.connect
def _trace(**_: Any) -> None:
    from portal import tracing

    tracing.start("worker")


@signals.worker_process_shutdown.connect
def _forget_process(pid: int, **_: Any) -> None:
    from prometheus_client import multiprocess

    from portal import metrics, tracing

    tracing.stop()

    if os.environ.get(metrics.MULTIPROCESS):
        multiprocess.mark_process_dead(pid)


@signals.task_prerun.connect
def _begin(task_id: str, **_: Any) -> None:
    _began[task_id] = time.perf_counter()


@signals.task_postrun.connect
def _end(task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
    from portal import metrics

    if (began := _began.pop(task_id, None)) is not None:
        metrics.task_seconds.labels(task.name).observe(time.perf_counter() - began)
        metrics.tasks.labels(task.name, (state or "unknown").lower()).inc()
