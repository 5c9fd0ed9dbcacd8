"""The only writer of ``Job.state``: what the engine reported, applied by one table.

    submitted ──accepted──▶ queued ──work──▶ running ──ended──▶ succeeded | failed | cancelled
                               ▲  └──paused──▶ paused ◀──paused──┘
                               └────resumed──────┘

``advance`` is pure: a view of the job and one fact give the next view, or ``IllegalTransition``. ``write`` is a compare-and-set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog
from django.db import transaction

from portal.billing import charging
from portal.jobs.models import OPEN_STATES, Job, JobEvent, State
from portal.notices import telling

log = structlog.get_logger(__name__)

_OPEN = frozenset(OPEN_STATES)
_ACCEPTED = frozenset({State.QUEUED, State.RUNNING, State.PAUSED})
_STAYS: dict[str, str] = {}
_WORKS = {State.QUEUED: State.RUNNING}

# kind → (states in which it may happen, {state: next state}); a state not in the second part stays.
TABLE: dict[str, tuple[frozenset[str], dict[str, str]]] = {
    "accepted": (frozenset({State.SUBMITTED}), {State.SUBMITTED: State.QUEUED}),
    "waiting": (_ACCEPTED, _STAYS),
    "admitted": (_ACCEPTED, _WORKS),
    "rollout_started": (_ACCEPTED, _WORKS),
    "rollout_ready": (_ACCEPTED, _WORKS),
    "rollout_lost": (_ACCEPTED, _STAYS),
    "train_started": (_ACCEPTED, _WORKS),
    "train_lost": (_ACCEPTED, _STAYS),
    "step": (_ACCEPTED, _WORKS),
    "pause_requested": (_ACCEPTED, _STAYS),
    "paused": (_ACCEPTED, {State.QUEUED: State.PAUSED, State.RUNNING: State.PAUSED}),
    "resumed": (_ACCEPTED, {State.PAUSED: State.QUEUED}),
    "stop_requested": (_ACCEPTED, _STAYS),
    "priority": (_ACCEPTED, _STAYS),
}
# `ended` names its target; each target has the states that it may be reached from.
ENDINGS: dict[str, frozenset[str]] = {State.SUCCEEDED: frozenset({State.RUNNING}), State.FAILED: _OPEN, State.CANCELLED: _OPEN}


class IllegalTransition(Exception):
    """A fact that cannot follow what is known of the job."""


class LostRace(Exception):
    """Somebody else wrote the job in between: read it again and decide anew."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """An engine event, or an ending that the portal itself found out."""

    kind: str
    at: datetime
    data: dict[str, Any]
    seq: int = 0
    engine: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """What the lifecycle owns of a job's row."""

    state: str
    state_reason: str
    attribution: str
    version: int
    last_seq: int
    engine: str
    ended_at: datetime | None

    @classmethod
    def of(cls, job: Job) -> View:
        return cls(**{name: getattr(job, name) for name in cls.__slots__})


def advance(view: View, fact: Fact) -> View:
    """The view after ``fact``. Raises ``IllegalTransition``; a kind that is not in the table changes nothing but ``last_seq``."""
    view = replace(view, last_seq=max(view.last_seq, fact.seq))
    if fact.kind == "ended":
        return _ended(view, fact)
    if fact.kind not in TABLE:
        return view
    allowed, moves = TABLE[fact.kind]
    if view.state not in allowed:
        raise IllegalTransition(f"{fact.kind} (seq {fact.seq}) while the job is {view.state}")
    state = moves.get(view.state, view.state)
    return replace(
        view,
        state=state,
        state_reason=_reason(view, state, fact)[:500],
        version=max(view.version, fact.data.get("version", 0)) if fact.kind == "step" else view.version,
        engine=fact.engine if fact.kind == "accepted" else view.engine,
    )


def seen(view: View, fact: Fact) -> View:
    """The view after a fact that was illegal: it is stored and counted, and moves nothing."""
    return replace(view, last_seq=max(view.last_seq, fact.seq))


def write(job: Job, before: View, after: View) -> None:
    """Compare-and-set; raises ``LostRace`` when the row is no longer as ``before`` says."""
    if before == after:
        return
    values = {name: getattr(after, name) for name in View.__slots__}
    expected = {"state": before.state, "last_seq": before.last_seq, "version": before.version}
    if not Job.objects.filter(pk=job.pk, **expected).update(**values):
        raise LostRace(f"{job.public_id} was no longer {expected}")
    for name, value in values.items():
        setattr(job, name, value)
    if before.state != after.state:
        log.info("job_moved", job=job.public_id, before=before.state, after=after.state, reason=after.state_reason, seq=after.last_seq)


def refuse(job: Job, problems: Iterable[tuple[str, str]], now: datetime) -> None:
    """The engine will not take it, now or ever."""
    reason = "; ".join(f"{field}: {message}" for field, message in problems)
    _end_here(job, reason=f"The engine refused it: {reason}", attribution="user", now=now)


def orphan(job: Job, now: datetime) -> None:
    """Its engine was replaced by one with an empty journal: nobody will ever report on it again."""
    reason = "The engine was replaced by a new one that does not know this job. Its history is kept; start it again as a new job."
    _end_here(job, reason=reason, attribution="platform", now=now)


def forget(job: Job, now: datetime) -> None:
    """The engine that had accepted it came back from a backup that is older than the job."""
    reason = "The engine was restored from a backup that is older than this job. What was billed is listed; start it again as a new job."
    _end_here(job, reason=reason, attribution="platform", now=now)


def rewind(job: Job, seq: int) -> None:
    """The engine has lost the events after ``seq``, and will tell others under their numbers: the job is as it was then.

    What they were billed for stays billed, once: a step that is done again has the same key in the ledger.
    """
    before = View.of(job)
    with transaction.atomic():
        JobEvent.objects.filter(job=job, seq__gt=seq).delete()
        view = replace(before, state=State.SUBMITTED, state_reason="", attribution="", version=0, last_seq=0, ended_at=None)
        for event in JobEvent.objects.filter(job=job).order_by("seq"):
            fact = Fact(kind=event.kind, at=event.at, data=event.data, seq=event.seq, engine=job.engine)
            try:
                view = advance(view, fact)
            except IllegalTransition:
                view = seen(view, fact)
        write(job, before, view)


def _end_here(job: Job, *, reason: str, attribution: str, now: datetime) -> None:
    """An ending that only the portal knows of. It is an event like any other, so every reader of the history learns of it."""
    before = View.of(job)
    data = {"state": State.FAILED, "reason": reason, "attribution": attribution, "version": before.version, "source": "portal"}
    figures = dict.fromkeys(("ttfs_seconds", "tpts_seconds", "completion_seconds"))
    fact = Fact(kind="ended", at=now, data={**data, **figures}, seq=before.last_seq + 1)
    with transaction.atomic():
        write(job, before, advance(before, fact))
        JobEvent.objects.create(tenant_id=job.tenant_id, job=job, seq=fact.seq, kind=fact.kind, at=now, data=fact.data)
        charging.charge(job, [fact], now)
        telling.tell(job, before.state, now)


def _ended(view: View, fact: Fact) -> View:
    target = fact.data.get("state")
    if target not in ENDINGS or view.state not in ENDINGS[target]:
        raise IllegalTransition(f"ended as {target} (seq {fact.seq}) while the job is {view.state}")
    reason = str(fact.data.get("reason") or "")
    attribution = str(fact.data.get("attribution") or "")[:10]
    return replace(view, state=target, state_reason=reason[:500], attribution=attribution, ended_at=fact.at)


def _reason(view: View, state: str, fact: Fact) -> str:
    """One line for people: why the job is where it is."""
    if fact.kind == "waiting":
        return str(fact.data.get("reason") or "")
    if fact.kind == "pause_requested":
        return "Pausing after the step that is running"
    if fact.kind == "stop_requested":
        return f"Stopping: {fact.data.get('reason') or 'on request'}"
    if fact.kind in ("rollout_lost", "train_lost"):
        return f"Repeating a step: {fact.data.get('reason') or 'it was lost'}"
    if fact.kind == "paused":
        return str(fact.data.get("reason") or "")
    if fact.kind in ("admitted", "step", "resumed"):
        return ""
    return view.state_reason
