"""Celery's part: carry submissions and commands to the engine. ``delivery`` does the work; a task takes an id and knows no more."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from portal import pulse
from portal.celery import app
from portal.jobs import delivery, retention
from portal.jobs.models import Job
from portal.rewards import probes


@app.task(name="portal.jobs.tasks.deliver", ignore_result=True)
def deliver(job_pk: int) -> None:
    delivery.deliver(job_pk, timezone.now())


@app.task(name="portal.jobs.tasks.sweep", ignore_result=True)
def sweep() -> None:
    """Send again what got lost: the broker may forget a task, a worker may die with one, the engine may be down for hours."""
    pulse.beat("worker", timezone.now())
    delivery.sweep(timezone.now())
    probes.sweep(timezone.now())


@app.task(name="portal.jobs.tasks.retain", ignore_result=True, soft_time_limit=3500, time_limit=3600)
def retain() -> None:
    """Let go of what tenants' own rules say they no longer keep."""
    retention.sweep(timezone.now())


def deliver_on_commit(job: Job) -> None:
    """Hand the job to a worker once its rows are visible. A broker that is down costs a delay, not the request."""
    transaction.on_commit(lambda: deliver.apply_async((job.pk,), retry=False), robust=True)
