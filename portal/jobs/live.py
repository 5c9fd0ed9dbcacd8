"""A job's events after a number: the one query behind the first page, reconnects, live updates and the API."""

from __future__ import annotations

from typing import Any

from portal.jobs.models import Job, JobEvent

MAX_EVENTS = 500


def events_after(job: Job | int, seq: int, limit: int = MAX_EVENTS) -> list[dict[str, Any]]:
    """At most ``limit`` (≤ 500) events with a number above ``seq``, in order, as JSON-ready dicts: seq, kind, at (ISO 8601, UTC), data."""
    # ``job`` may be the row's key: the sockets' shared reader holds no rows.
    rows = JobEvent.objects.filter(job=job, seq__gt=seq).order_by("seq")[: max(1, min(limit, MAX_EVENTS))]
    return [{"seq": row.seq, "kind": row.kind, "at": row.at.isoformat(), "data": row.data} for row in rows]
