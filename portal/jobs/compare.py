"""The engine's jobs against the portal's rows: after either side came back from a backup, they differ.

``look`` is pure; ``mend`` does what needs nobody's decision, in one transaction. The ingester calls it when it starts and with each new
epoch of the engine, ``manage.py compare_engine`` at any time. Where both sides are of the same moment, nothing is found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import structlog
from django.db import transaction
from django.db.models import Q

from portal import gateway
from portal.jobs import lifecycle
from portal.jobs.models import OPEN_STATES, EngineCursor, Job, JobSubmission, State

log = structlog.get_logger(__name__)

Kind = Literal["resend", "lost", "rewind", "again", "stop", "stranger"]
SAYS: dict[Kind, str] = {
    "resend": "the engine took it and does not know it any more: it is sent again",
    "lost": "the engine had accepted it and does not know it any more: it ends, by the platform's doing",
    "rewind": "the engine has lost its latest events: it goes on from where the engine is, and no step is billed twice",
    "again": "it succeeded, and the engine has lost its last versions: they are made again, unbilled",
    "stop": "it has ended, and the engine goes on with it: it is cancelled there",
    "stranger": "the engine has it open and no tenant has it: it runs unbilled until somebody ends it (compare_engine --cancel-strangers)",
}


class BadStatus(Exception):
    """The engine's status lacks what a comparison needs: it is of an older release."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """What ``GET /status`` tells of the journal. ``began``: the offset at which this epoch began; ``jobs``: its line of each job."""

    engine: str
    epoch: int
    began: int
    jobs: Mapping[str, Mapping[str, Any]]

    @classmethod
    def parse(cls, answer: dict[str, Any]) -> Status:
        try:
            jobs = {str(line["job"]): line for line in answer["jobs"]}
            return cls(engine=str(answer["engine"]), epoch=int(answer["epoch"]), began=int(answer["journal"]["began"]), jobs=jobs)
        except (KeyError, TypeError, ValueError) as error:
            raise BadStatus(f"a status without {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One of the portal's jobs. ``taken``: some engine was known to have it when this one was asked (``taken``)."""

    job: str
    state: str
    last_seq: int
    taken: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    kind: Kind
    job: str

    def __str__(self) -> str:
        return f"{self.job}: {SAYS[self.kind]}"


@dataclass(kw_only=True)
class Found:
    """``moved``: the cursor went back; ``announce``: {group: last seq} of the jobs that changed."""

    findings: list[Finding] = field(default_factory=list)
    moved: bool = False
    announce: dict[str, int] = field(default_factory=dict)


def look(rows: Iterable[Row], status: Status, *, went_back: bool) -> list[Finding]:
    """``rows``: all of this engine's, and those that wait for an engine. ``went_back``: the rows know events that the journal has lost."""
    found, known = [], set()
    for row in rows:
        known.add(row.job)
        kind = _kind(row, status.jobs.get(row.job), went_back)
        if kind is not None:
            found.append(Finding(kind=kind, job=row.job))
    strangers = [job for job, line in status.jobs.items() if job not in known and _is_open(line)]
    return [*found, *(Finding(kind="stranger", job=job) for job in strangers)]


def _kind(row: Row, line: Mapping[str, Any] | None, went_back: bool) -> Kind | None:
    if row.state == State.SUBMITTED:
        return "resend" if line is None and row.taken else None
    if row.state in OPEN_STATES:
        if line is None:
            return "lost" if row.taken else None
        return "rewind" if went_back and row.last_seq > line["began_seq"] else None
    if not went_back or line is None or not _is_open(line):
        return None
    return "again" if row.state == State.SUCCEEDED else "stop"


def _is_open(line: Mapping[str, Any]) -> bool:
    return line["state"] not in (State.SUCCEEDED, State.FAILED, State.CANCELLED)


def taken() -> frozenset[str]:
    """Jobs that are not over and that an engine is known to have. To be asked for before its status: what it takes meanwhile is not
    missed there, though its rows may be further by then, where an old and a new ingester run side by side.
    """
    begun = Q(state__in=OPEN_STATES) & ~Q(state=State.SUBMITTED)
    return frozenset(
        Job.objects.filter(begun | Q(state=State.SUBMITTED, submission__answered_at__isnull=False)).values_list("public_id", flat=True)
    )


def survey(status: Status, before: Collection[str], name: str = "") -> tuple[list[Finding], bool]:
    """(what differs, whether the journal went back behind what is stored), from the rows as they are.

    ``before``: what was ``taken`` before the status was asked for. ``name``: the engine's.
    """
    cursor = EngineCursor.objects.filter(engine=status.engine).first() or EngineCursor()
    # Within one epoch the journal only grows, so only what an older epoch told can be missing from it.
    went_back = cursor.epoch < status.epoch and cursor.offset > status.began
    mine = Q(engine="") & (Q(submission__sent_to=name) | Q(submission__sent_to=None)) | Q(engine=status.engine)
    jobs = Job.objects.filter(mine).values_list("public_id", "state", "last_seq")
    rows = [Row(job=job, state=state, last_seq=seq, taken=job in before) for job, state, seq in jobs]
    return look(rows, status, went_back=went_back), went_back


def mend(status: Status, before: Collection[str], now: datetime, name: str = "") -> Found:
    """Compare and set right; all of it or nothing. Twice is once. Raises ``gateway.EngineDown``."""
    cancel([finding.job for finding in survey(status, before, name)[0] if finding.kind == "stop"], name)  # before it is forgotten why
    with transaction.atomic():
        findings, went_back = survey(status, before, name)
        found = Found(findings=findings, moved=went_back)
        jobs = {job.public_id: job for job in Job.objects.select_for_update().filter(public_id__in=[f.job for f in findings])}
        for finding in findings:
            log.error("portal_and_engine_differ", job=finding.job, kind=finding.kind, what=SAYS[finding.kind])
            if (job := jobs.get(finding.job)) is not None:
                _set_right(finding.kind, job, status, now)
                found.announce[job.group] = job.last_seq
        behind = EngineCursor.objects.filter(engine=status.engine, epoch__lt=status.epoch)
        behind.update(epoch=status.epoch, updated_at=now, **({"offset": status.began} if went_back else {}))
    return found


def _set_right(kind: Kind, job: Job, status: Status, now: datetime) -> None:
    """The portal's part; of the other kinds the engine does all."""
    if kind == "resend":
        JobSubmission.objects.filter(job=job).update(answered_at=None)
    elif kind == "lost":
        lifecycle.forget(job, now)
    elif kind == "rewind":
        lifecycle.rewind(job, status.jobs[job.public_id]["began_seq"])


def cancel(jobs: Iterable[str], name: str = "") -> None:
    """End them in this engine. One that has ended there meanwhile is no error."""
    for job in jobs:
        try:
            gateway.engine(name).command(job, "cancel", "its tenant has ended it, or does not have it")
        except gateway.EngineRefused as refused:
            log.info("cancel_refused", job=job, status=refused.status, reason=str(refused))
