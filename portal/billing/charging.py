"""Billing's part of the ingest: entries, the hold and the days, in the transaction that stores the events they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

import structlog

from portal.billing import holds, ledger
from portal.billing.ledger import Line
from portal.billing.meter import BILLABLE, Meter
from portal.billing.models import Entry, Hold, SourceType
from portal.billing.prices import PriceBook
from portal.jobs.models import Job, JobEvent

log = structlog.get_logger(__name__)


class Happened(Protocol):
    """An event of the engine, or an ending that the portal found out itself."""

    kind: str
    at: datetime
    data: dict[str, Any]


def charge(job: Job, events: Sequence[Happened], now: datetime) -> None:
    """Bill what ``events`` tell of ``job``; its rows are stored and its state is written already. Told twice, it is billed once.

    A job without a hold is older than billing on this installation: it is not billed.
    """
    billable = [event for event in events if event.kind in BILLABLE]
    hold = Hold.objects.select_related("tenant").filter(job=job).first() if billable else None
    if hold is None:
        return
    meter = Meter(job=job.public_id, model=job.base_model, prices=PriceBook.read().price)
    lines = [line for event in billable for line in _lines(meter, job, event)]
    added = ledger.post(hold.tenant, lines, now)
    charged = -sum(entry.amount_micros for entry in added)
    if charged > hold.micros:
        log.warning("charged_more_than_held", job=job.public_id, charged_micros=charged, held_micros=hold.micros)
    holds.pay(hold, charged, now)
    if not job.is_open:
        holds.release(hold, now)


def _lines(meter: Meter, job: Job, event: Happened) -> list[Line]:
    if event.kind == "step":
        return _once(job, meter.step(event.data, event.at))
    if event.kind == "eval":
        return meter.evaluation(event.data, event.at)
    if event.kind == "rollout_lost":
        ready = _ready(job, version=event.data.get("version"), attempt=event.data.get("attempt"))
        return meter.batch(ready, event.at, reason=_why_free(event.data)) if ready else []
    ready = _left_over(job)
    return meter.batch(ready, event.at, reason="" if _own_doing(event.data) else _why_free(event.data)) if ready else []


def _once(job: Job, lines: list[Line]) -> list[Line]:
    """A step that was billed under another attempt, which the engine lost in a restore, is done again at the platform's expense."""
    if not lines:
        return lines
    steps = Entry.objects.filter(
        tenant_id=job.tenant_id, source_type=SourceType.JOB, source=job.public_id, step=lines[0].step, reverses=None
    )
    if not steps.filter(amount_micros__lt=0).exclude(attempt=lines[0].attempt).exists():
        return lines
    return [replace(line, price_micros=0, reason="billed before the engine was restored, with the attempt that it lost") for line in lines]


def _own_doing(ended: dict[str, Any]) -> bool:
    """Whether the tenant, or the tenant's reward, ended the job."""
    return ended.get("attribution") in ("user", "reward")


def _why_free(data: dict[str, Any]) -> str:
    return f"not billed, no step came of it: {data.get('reason') or 'the platform lost it'}"[:300]


def _ready(job: Job, **where: Any) -> dict[str, Any] | None:
    """The batch that was sampled for a version under an attempt."""
    wanted = {f"data__{name}": value for name, value in where.items()}
    found = JobEvent.objects.filter(job=job, kind="rollout_ready", **wanted).order_by("-seq").first()
    return found.data if found else None


def _left_over(job: Job) -> dict[str, Any] | None:
    """The batch that was ready, but not trained on, when the job ended."""
    found = _ready(job, version=job.version)
    if found is None:
        return None
    lost = {"data__version": job.version, "data__attempt": found.get("attempt")}
    return None if JobEvent.objects.filter(job=job, kind="rollout_lost", **lost).exists() else found
