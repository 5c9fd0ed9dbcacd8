"""Celery's part: a trial in the Lab goes on, a few seconds at a time."""

from __future__ import annotations

from django.utils import timezone

from portal.celery import app
from portal.rewards import lab

LIMIT_SECONDS = 240


@app.task(name="portal.rewards.tasks.grade_slice", ignore_result=True, acks_late=False, time_limit=LIMIT_SECONDS, soft_time_limit=None)
def grade_slice(pk: int) -> None:
    """A lost task or a dead worker is noticed by whoever looks at the run, which starts it again."""
    lab.go_on(pk, timezone.now())
