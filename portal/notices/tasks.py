"""Celery's part: carry what is due."""

from __future__ import annotations

from django.utils import timezone

from portal.celery import app
from portal.notices import carrying


@app.task(name="portal.notices.tasks.carry", ignore_result=True)
def carry() -> None:
    carrying.sweep(timezone.now())
