"""Celery's part of chats."""

from __future__ import annotations

from django.utils import timezone

from portal.celery import app
from portal.openai import chats


@app.task(name="portal.openai.tasks.sweep", ignore_result=True)
def sweep() -> None:
    """End the chats whose web process died."""
    chats.sweep(timezone.now())
