"""Celery's part: check uploads that are too large for a request, and measure prompts for another model."""

from __future__ import annotations

from django.utils import timezone

from portal.celery import app
from portal.datasets import uploads
from portal.datasets.measure import measure
from portal.datasets.models import Dataset

LIMIT_SECONDS = 2 * 3600
TURN_SECONDS = 3.0


@app.task(name="portal.datasets.tasks.process_upload", ignore_result=True, acks_late=False, time_limit=LIMIT_SECONDS, soft_time_limit=None)
def process_upload(pk: int, attempt: int) -> None:
    """A lost task or a dead worker is noticed by the page, which starts it again."""
    if uploads.others_at_work(pk, timezone.now()):
        uploads.keep_waiting(pk, attempt, timezone.now())
        process_upload.apply_async((pk, attempt), countdown=TURN_SECONDS, retry=False)
        return
    uploads.process(pk, attempt)


@app.task(name="portal.datasets.tasks.measure_prompts", ignore_result=True, acks_late=False, time_limit=LIMIT_SECONDS, soft_time_limit=None)
def measure_prompts(pk: int, model: str) -> None:
    measure(Dataset.objects.get(pk=pk), model)
