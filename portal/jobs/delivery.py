"""Carry a job's submission and commands to the engine, in order, one carrier per job at a time, as often as it takes."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog
from django.db.models import F, Q

from portal import gateway
from portal.jobs import engines, lifecycle
from portal.jobs.announce import announce
from portal.jobs.models import OPEN_STATES, Job, JobCommand, JobSubmission, State

log = structlog.get_logger(__name__)

LEASE = timedelta(seconds=60)  # longer than the calls' deadlines together; a dead carrier's lease runs out
LOST_AFTER = timedelta(seconds=5)
MAX_CALLS = 4


def deliver(job_pk: int, now: datetime) -> bool:
    """Send what is due for this job, also what became due meanwhile. False when the engine is down: the rest stays due."""
    while lease := _lease(job_pk, now):
        try:
            if not _send_due(job_pk, now):
                return False
        finally:
            JobSubmission.objects.filter(job_id=job_pk, leased_until=lease).update(leased_until=None)
        if not _is_due(job_pk):  # a wish that came while we held the lease was not sent by its own task
            return True
    return True


def sweep(now: datetime) -> int:
    """Deliver whatever has been due for a while. Returns how many jobs were tried: of an engine that is down, one each time."""
    old = now - LOST_AFTER
    due = set(JobSubmission.objects.filter(answered_at=None, created_at__lt=old).values_list("job_id", flat=True))
    due |= set(JobCommand.objects.filter(answered_at=None, requested_at__lt=old).values_list("job_id", flat=True))
    tried, away = 0, set()
    for job in Job.objects.filter(pk__in=due).order_by("pk"):
        if (engine := engines.name_of(job)) in away:
            continue
        tried += 1
        if not deliver(job.pk, now):
            away.add(engine)
    return tried


def _lease(job_pk: int, now: datetime) -> datetime | None:
    """Until when this caller alone sends for the job; None while another one does."""
    free = Q(leased_until=None) | Q(leased_until__lt=now)
    until = now + LEASE
    return until if JobSubmission.objects.filter(free, job_id=job_pk).update(leased_until=until) else None


def _is_due(job_pk: int) -> bool:
    waiting = JobCommand.objects.filter(job_id=job_pk, answered_at=None)
    return waiting.exists() or JobSubmission.objects.filter(job_id=job_pk, answered_at=None).exists()


def _send_due(job_pk: int, now: datetime) -> bool:
    submission = JobSubmission.objects.select_related("job").get(job_id=job_pk)
    if submission.answered_at is None and not _send(submission, now, _submit):
        return False
    for command in JobCommand.objects.select_related("job").filter(job_id=job_pk, answered_at=None).order_by("id")[:MAX_CALLS]:
        if not _send(command, now, _command):
            return False
    return True


def _send(row: JobSubmission | JobCommand, now: datetime, call) -> bool:
    """One call and its outcome on the row. False: not answered, to be sent again."""
    kind = type(row)
    kind.objects.filter(pk=row.pk).update(attempts=F("attempts") + 1)
    try:
        error = call(row, now)
    except gateway.EngineDown as down:
        log.warning("delivery_postponed", job=row.job.public_id, what=kind.__name__, reason=str(down))
        kind.objects.filter(pk=row.pk).update(last_error=str(down)[:500])
        return False
    kind.objects.filter(pk=row.pk).update(answered_at=now, last_error=error[:500])
    return True


def _submit(submission: JobSubmission, now: datetime) -> str:
    job = submission.job
    try:
        gateway.engine(engines.send_to(submission)).submit(job.public_id, submission.body)
    except gateway.EngineRefused as refused:
        log.error("submission_refused", job=job.public_id, status=refused.status, problems=refused.problems, reason=str(refused))
        if job.state == State.SUBMITTED:
            lifecycle.refuse(job, refused.problems or [("spec", str(refused))], now)
            announce(job)
        return str(refused)
    return ""


def _command(command: JobCommand, now: datetime) -> str:
    """A refusal is an answer: 409 means that the job had ended before, 404 that the engine never took it."""
    job = command.job
    if job.state not in OPEN_STATES:
        return "the job had ended before"
    try:
        engines.of(job).command(job.public_id, command.kind, command.reason)
    except gateway.EngineRefused as refused:
        log.warning("command_refused", job=job.public_id, command=command.kind, status=refused.status, reason=str(refused))
        return str(refused)
    return ""
