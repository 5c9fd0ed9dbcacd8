"""A job's events after a number: the one query behind the first page, reconnects, live updates and the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from django.db.models import TextField
from django.db.models.functions import Cast
from django.http import HttpResponse

from portal.jobs.models import Job, JobEvent

MAX_EVENTS = 500


def events_after(job: Job | int, seq: int, limit: int = MAX_EVENTS) -> list[dict[str, Any]]:
    """At most ``limit`` (≤ 500) events with a number above ``seq``, in order: seq, kind, at (ISO 8601, UTC), data (``msgspec.Raw``).

    For ``msgspec.json.encode``: the data goes out as it lies in the database. To make objects of it for each of many watchers and
    programs, and JSON of these again, took most of the web process's time, and its memory.
    """
    # ``job`` may be the row's key: the sockets' shared reader holds no rows.
    rows = JobEvent.objects.filter(job=job, seq__gt=seq).order_by("seq").annotate(text=Cast("data", TextField()))
    found = rows.values_list("seq", "kind", "at", "text")[: max(1, min(limit, MAX_EVENTS))]
    return [{"seq": number, "kind": kind, "at": at.isoformat(), "data": msgspec.Raw(text)} for number, kind, at, text in found]


def page_after(job: Job, seq: int, limit: int = MAX_EVENTS) -> dict[str, Any]:
    """{events, last}: ``events_after``, and the number to ask behind next."""
    events = events_after(job, seq, limit)
    return {"events": events, "last": events[-1]["seq"] if events else seq}


def told(body: dict[str, Any]) -> HttpResponse:
    """As JSON, with events as they lie in the database, which the usual encoder cannot write and would take as long for as the query."""
    return HttpResponse(msgspec.json.encode(body), content_type="application/json")


def newest_of(job: Job, kinds: Sequence[str], *, until_seq: int | None = None, most: int | None = None) -> list[JobEvent]:
    """The newest ``most`` events (all of them: None) of these kinds, the oldest first.

    Asked for together in the order of their numbers, a database would rather walk the job's whole history than its index of kinds: so only
    numbers are asked for, kind by kind, and then the events by number.
    """
    found = JobEvent.objects.filter(job=job, kind__in=kinds)
    found = found if until_seq is None else found.filter(seq__lte=until_seq)
    seqs = sorted(found.order_by("kind", "seq").values_list("seq", flat=True))
    wanted = seqs if most is None else seqs[-most:]
    pages = (wanted[start : start + MAX_EVENTS] for start in range(0, len(wanted), MAX_EVENTS))
    return [event for page in pages for event in JobEvent.objects.filter(job=job, seq__in=page).order_by("seq")]
