"""Long histories of a job, as rows: what the ingester would have stored, without an engine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from portal.jobs import series
from portal.jobs.models import Job, JobEvent
from tests.portal import fake_script
from tests.portal.world import NOW


def events_of(job: Job, steps: int, *, every_event: bool = True) -> Iterator[dict[str, Any]]:
    """Numbered from 1; with ``every_event`` the phases as well, else steps alone."""
    seq = 0
    for version in range(steps):
        for _, kind, data in fake_script.step_events(job.public_id, job.spec, version, NOW.timestamp() + 2 * version):
            if every_event or kind == "step":
                seq += 1
                yield {"seq": seq, "kind": kind, "at": NOW + timedelta(seconds=2 * version), "data": data}


def play(job: Job, steps: int, *, every_event: bool = True) -> list[dict[str, Any]]:
    """Store what ``steps`` steps report; the job runs. Returns the events."""
    events = list(events_of(job, steps, every_event=every_event))
    rows = (JobEvent(tenant_id=job.tenant_id, job=job, **event) for event in events)
    JobEvent.objects.bulk_create(rows, batch_size=500)
    Job.objects.filter(pk=job.pk).update(state="running", version=steps, last_seq=len(events))
    job.refresh_from_db()
    series.keep(job, 0)
    return events
