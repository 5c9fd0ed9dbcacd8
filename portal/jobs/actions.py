"""Jobs' mutations. None of them touches ``Job.state``: the page changes when the engine's event arrives."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from portal.billing import gate
from portal.errors import Conflict
from portal.jobs import door, tasks
from portal.jobs.models import Job, JobCommand, JobSubmission, State
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User


def create_job(tenant: Tenant, user: User, raw: Any, now: datetime, *, idempotency_key: str | None = None) -> Job:
    """A job of ``raw``: {name?, dataset, reward, base_model, rollout?, lora?, train?, eval?, seed?, budget?}; dataset, reward: public ids.

    The same ``idempotency_key`` with the same ``raw`` gives the same job; with another one ``Conflict``. Raises ``Invalid`` naming every
    bad field, ``Forbidden`` for viewers. Nothing is stored unless all is; sending follows the commit.
    """
    require(tenant, user, Role.MEMBER)
    digest = door.request_sha256(raw)
    if idempotency_key and (job := _replayed(tenant, idempotency_key, digest)):
        return job
    order = door.check(tenant, raw, now)
    door.ask_engine(order.spec)
    with transaction.atomic():
        # Two requests with one key: the second waits and finds the first's job. Rows that only point at the tenant need not wait.
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        if idempotency_key and (job := _replayed(tenant, idempotency_key, digest)):
            return job
        job = Job.objects.create(
            tenant=tenant,
            name=order.name,
            dataset=order.dataset,
            reward=order.reward,
            spec=order.spec.model_dump(mode="json"),
            submitted_at=now,
            created_by=user,
        )
        JobSubmission.objects.create(
            tenant=tenant,
            job=job,
            body=door.submission(tenant, order.spec, now).model_dump(mode="json"),
            idempotency_key=idempotency_key,
            request_sha256=digest,
            created_at=now,
        )
        gate.admit(job, order.spec, order.budget, now)
        audit.record(tenant, user, "job.created", job)
        tasks.deliver_on_commit(job)
    return job


def check_job(tenant: Tenant, user: User, raw: Any, now: datetime) -> None:
    """Raises what ``create_job`` would of ``raw``, as far as the portal can tell, and stores nothing."""
    require(tenant, user, Role.MEMBER)
    door.check(tenant, raw, now)


def cancel_job(tenant: Tenant, user: User, job: Job, now: datetime) -> JobCommand:
    return _command(tenant, user, job, JobCommand.Kind.CANCEL, now)


def pause_job(tenant: Tenant, user: User, job: Job, now: datetime) -> JobCommand:
    return _command(tenant, user, job, JobCommand.Kind.PAUSE, now)


def resume_job(tenant: Tenant, user: User, job: Job, now: datetime) -> JobCommand:
    return _command(tenant, user, job, JobCommand.Kind.RESUME, now)


def archive_job(tenant: Tenant, user: User, job: Job, now: datetime, *, archived: bool = True) -> None:
    """The list leaves it out, or shows it again; nothing else changes. Only what has ended: an open job must stay in sight."""
    require(tenant, user, Role.MEMBER)
    if archived and job.is_open:
        raise Conflict([("state", f"{job.name} is {job.state}; only a job that has ended can be archived")])
    with transaction.atomic():
        changed = tenant.jobs.filter(pk=job.pk, archived_at__isnull=archived).update(archived_at=now if archived else None)
        if changed and archived:
            audit.record(tenant, user, "job.archived", job)


def _command(tenant: Tenant, user: User, job: Job, kind: JobCommand.Kind, now: datetime) -> JobCommand:
    """Write the wish down and send it after the commit. An unanswered equal wish at the tail is the same wish (a double click)."""
    require(tenant, user, Role.MEMBER)
    with transaction.atomic():
        job = tenant.jobs.select_for_update().get(pk=job.pk)
        pending = job.commands.filter(answered_at=None).order_by("-id").first()
        if pending and pending.kind == kind:
            return pending
        if not job.is_open:
            raise Conflict(
                [("state", f"the job has already {job.state}" if job.state != State.CANCELLED else "the job is already cancelled")]
            )
        if kind != JobCommand.Kind.CANCEL and job.is_stopping:
            raise Conflict([("state", f"the job has been asked to stop, so it cannot be {kind}d any more")])
        if kind == JobCommand.Kind.RESUME and job.state != State.PAUSED and not (pending and pending.kind == JobCommand.Kind.PAUSE):
            raise Conflict([("state", f"only a paused job can be resumed; this one is {job.state}")])
        if kind == JobCommand.Kind.RESUME:
            gate.resume(job, now)
        reason = f"{kind} by {user.email}"
        command = JobCommand.objects.create(tenant=tenant, job=job, kind=kind, reason=reason, requested_by=user, requested_at=now)
        audit.record(tenant, user, f"job.{kind.value}", job)
        tasks.deliver_on_commit(job)
    return command


def _replayed(tenant: Tenant, key: str, digest: str) -> Job | None:
    found = door.replayed(JobSubmission.objects.select_related("job").filter(tenant=tenant), key, digest)
    return found.job if found else None
