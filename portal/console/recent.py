"""The last quarter of an hour of all jobs' steps, kept in this process: each look reads only the rows that are new since the last one.

Rows are found by their primary key, which one ingester gives out in order; no index on time is needed, and ten million events cost nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max

from portal.jobs.models import JobEvent

WINDOW = timedelta(minutes=15)
MOST_STEPS = 20_000
MOST_ROWS = 60_000  # a step makes about four events; what lies further back than this is not looked at


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One committed step. ``lanes``: (lane, start, end) in epoch seconds; of ``env`` only the length is known, so it is put at the end."""

    pk: int
    job: str
    tenant: str
    name: str
    version: int
    committed: float
    submitted: float
    lanes: tuple[tuple[str, float, float], ...]
    tokens: int
    engine: str = ""  # the journal that the job is in


class Recent:
    """Safe for threads. ``steps`` brings itself up to date."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: deque[Step] = deque(maxlen=MOST_STEPS)
        self._read = 0

    def steps(self, now: datetime) -> list[Step]:
        """Committed within ``WINDOW`` before ``now``, oldest first."""
        with self._lock:
            self._refresh(now)
            since = (now - WINDOW).timestamp()
            while self._steps and self._steps[0].committed < since:
                self._steps.popleft()
            return list(self._steps)

    def _refresh(self, now: datetime) -> None:
        newest = JobEvent.objects.aggregate(newest=Max("id"))["newest"] or 0
        if newest < self._read:  # another database
            self._steps.clear()
            self._read = 0
        if newest == self._read:
            return
        after = max(self._read, newest - MOST_ROWS)
        self._steps.extend(_steps(after, newest, now - WINDOW))
        self._read = newest


def _steps(after: int, until: int, since: datetime) -> Iterator[Step]:
    rows = JobEvent.objects.filter(id__gt=after, id__lte=until, kind="step", at__gte=since).order_by("id")
    wanted = rows.values_list(
        *("id", "at", "data__version", "data__spans", "data__seconds", "data__tokens"),
        *("job__public_id", "job__name", "job__submitted_at", "tenant__public_id", "job__engine"),
    )
    for pk, at, version, spans, seconds, tokens, job, name, submitted, tenant, engine in wanted:
        yield Step(
            pk=pk,
            job=job,
            tenant=tenant,
            name=name,
            version=version if isinstance(version, int) else 0,
            committed=at.timestamp(),
            submitted=submitted.timestamp(),
            lanes=tuple(lanes(spans, seconds)),
            tokens=served(tokens),
            engine=engine,
        )


def lanes(spans: Any, seconds: Any) -> Iterator[tuple[str, float, float]]:
    """Of a step's event, whose shape an older or newer engine may have changed: what cannot be read is left out."""
    found = {span["phase"]: (span["start"], span["end"]) for span in spans if isinstance(span, dict)} if isinstance(spans, list) else {}
    if rollout := found.get("rollout"):
        yield "rollout", *rollout
        beside = sum(seconds.get(name) or 0.0 for name in ("env", "reward")) if isinstance(seconds, dict) else 0.0
        if beside > 0:
            yield "env", max(rollout[0], rollout[1] - beside), rollout[1]
    if train := found.get("train"):
        yield "train", train[0], found.get("commit", train)[1]


def served(tokens: Any) -> int:
    """What the sampler read and wrote for the step."""
    return sum(int(tokens.get(kind) or 0) for kind in ("prefill", "sampled", "judge")) if isinstance(tokens, dict) else 0


recent = Recent()
