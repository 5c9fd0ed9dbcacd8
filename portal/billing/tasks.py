"""Celery's part of billing. Each task looks for what is due in rows, and has a deadline; those of Stripe do nothing where there is none."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from portal.billing import holds, limits, notices, outbox, reconcile, storage, stripe_client
from portal.celery import app

SECONDS = 60.0  # and one call more, which together stay below the worker's own limit


@app.task(name="portal.billing.tasks.tell", ignore_result=True)
def tell() -> None:
    """Send the usage of the hours that are over."""
    if stripe := stripe_client.connect():
        outbox.seal(timezone.now())
        outbox.send(stripe, timezone.now(), seconds=SECONDS)
        outbox.alarm(timezone.now())


@app.task(name="portal.billing.tasks.handle", ignore_result=True)
def handle() -> None:
    """Handle Stripe's notices that are not handled yet."""
    if stripe := stripe_client.connect():
        notices.sweep(stripe, timezone.now(), seconds=SECONDS)


@app.task(name="portal.billing.tasks.alert", ignore_result=True)
def alert() -> None:
    """Mail organisations whose month has reached what they asked to be told at. With or without Stripe."""
    limits.tell(timezone.now())


@app.task(name="portal.billing.tasks.nightly", ignore_result=True, soft_time_limit=3500, time_limit=3600)
def nightly() -> None:
    """Ask Stripe for what it told us of and we never heard, then compare."""
    if stripe := stripe_client.connect():
        notices.backfill(stripe, timezone.now())
        notices.sweep(stripe, timezone.now(), seconds=SECONDS)
        reconcile.compare(stripe, timezone.now())


@app.task(name="portal.billing.tasks.sweep", ignore_result=True)
def sweep() -> None:
    """Release what is held for answers whose process died. With or without Stripe."""
    holds.sweep(timezone.now())


@app.task(name="portal.billing.tasks.store", ignore_result=True)
def store() -> None:
    """Count what was stored on the days that are over; each once, however often this runs. With or without Stripe."""
    storage.charge(timezone.now())


def handle_on_commit() -> None:
    """Hand the notice to a worker once its row is visible. A broker that is down costs a delay: the beat finds the row."""
    transaction.on_commit(lambda: handle.apply_async(retry=False), robust=True)
