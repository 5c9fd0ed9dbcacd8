"""How long an organisation keeps what its ended jobs left: for ever, unless it says otherwise.

Two rules, each in days after a job's end. ``completions_days``: what it sampled, in steps and evaluations. ``versions_days``: its
checkpoints, all but the latest, the best on held-out rows, those that somebody keeps, and those that another job begins with. History,
hashes and the ledger stay, and nothing of a job that has not ended is ever touched. Whatever is asked of the engine may be asked again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import structlog
from django.db import transaction
from django.db.models import QuerySet

from portal import gateway
from portal.errors import Invalid
from portal.jobs import engines, evaluation
from portal.jobs.models import OPEN_STATES, Checkpoint, Job, JobEvent, Retention
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User

log = structlog.get_logger(__name__)

MOST_DAYS = 3650
AT_ONCE = 100  # jobs whose events are read together
LOOKED_AT = 1000  # jobs, for a page
VERSIONS_A_ROUND = 500  # that one tenant's round lets go of: the next round goes on
_READ = ("deleted", "completions_deleted", "version_deleted", "eval")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """In days after a job's end; None: for ever."""

    completions_days: int | None = None
    versions_days: int | None = None

    @property
    def keep_all(self) -> bool:
        return self.completions_days is None and self.versions_days is None


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """What of ``job`` its tenant's rules let go of now."""

    job: Job
    completions: bool
    versions: tuple[int, ...]


def rules(tenant: Tenant) -> Rules:
    row = Retention.objects.filter(tenant=tenant).first()
    return Rules(completions_days=row.completions_days, versions_days=row.versions_days) if row else Rules()


def change(tenant: Tenant, user: User, wanted: Rules, now: datetime) -> None:
    """Raises ``Forbidden``, ``Invalid``."""
    require(tenant, user, Role.ADMIN)
    given = {"completions_days": wanted.completions_days, "versions_days": wanted.versions_days}
    if bad := [(name, f"takes 1 to {MOST_DAYS} days; leave it empty for ever") for name, days in given.items() if not _possible(days)]:
        raise Invalid(bad)
    with transaction.atomic():
        Retention.objects.update_or_create(tenant=tenant, defaults={**given, "changed_at": now})
        words = {name: "for ever" if days is None else f"{days} days" for name, days in given.items()}
        audit.record(tenant, user, "retention.changed", tenant, **words)


def due(tenant: Tenant, wanted: Rules, now: datetime, *, most_jobs: int | None = None) -> Iterator[Due]:
    """What ``wanted`` would let go of now, of the oldest ``most_jobs`` that it reaches. Reads only; what is gone already is not in it."""
    begun_with = _begun_with(tenant)
    for jobs in islice(_reached(tenant, wanted, now), most_jobs and -(-most_jobs // AT_ONCE)):
        told, kept = _told(jobs), _kept(jobs)
        for job in jobs:
            found = _of_job(job, wanted, now, told[job.pk], kept[job.pk] | begun_with[job.public_id])
            if found.completions or found.versions:
                yield found


def preview(tenant: Tenant, wanted: Rules, now: datetime) -> dict[str, Any]:
    """For a page, of the oldest ``LOOKED_AT`` jobs: {"due", "completions" (of how many jobs), "versions" (how many)}."""
    found = list(due(tenant, wanted, now, most_jobs=LOOKED_AT))
    return {"due": found, "completions": sum(one.completions for one in found), "versions": sum(len(one.versions) for one in found)}


def apply(tenant: Tenant, now: datetime) -> list[Due]:
    """Let go of what is due, at most ``VERSIONS_A_ROUND`` versions; what was let go of. An engine that is away ends the round."""
    done: list[Due] = []
    left = VERSIONS_A_ROUND
    for found in due(tenant, rules(tenant), now):
        try:
            one = _let_go(found, left)
        except gateway.EngineDown as down:
            log.warning("retention_waits", tenant=tenant.public_id, reason=str(down))
            break
        if one is not None:
            audit.record(tenant, None, "retention.applied", found.job, completions=one.completions, versions=len(one.versions))
            done.append(one)
            left -= len(one.versions)
        if left <= 0:
            break
    return done


def sweep(now: datetime) -> None:
    """All tenants that have rules and are not being deleted anyway."""
    with_rules = Retention.objects.exclude(completions_days=None, versions_days=None).filter(tenant__deleted_at=None)
    for row in with_rules.select_related("tenant").order_by("tenant_id"):
        if done := apply(row.tenant, now):
            versions = sum(len(one.versions) for one in done)
            log.info("retention_applied", tenant=row.tenant.public_id, jobs=len(done), versions=versions)


def _let_go(found: Due, most: int) -> Due | None:
    """What was let go of; None where the engine knows nothing of the job (any more)."""
    engine, name, versions = engines.of(found.job), found.job.public_id, found.versions[:most]
    try:
        if found.completions:
            engine.delete_completions(name)
        for version in versions:
            engine.delete_version(name, version)
    except gateway.EngineRefused as refused:
        log.warning("retention_refused", job=name, reason=str(refused))
        return None
    return Due(job=found.job, completions=found.completions, versions=versions)


def _possible(days: int | None) -> bool:
    return days is None or 1 <= days <= MOST_DAYS


def _reached(tenant: Tenant, wanted: Rules, now: datetime) -> Iterator[list[Job]]:
    """The ended jobs that a rule reaches, the oldest first, ``AT_ONCE`` of them at a time."""
    days = [number for number in (wanted.completions_days, wanted.versions_days) if number is not None]
    if not days:
        return
    reached: QuerySet[Job] = tenant.jobs.exclude(state__in=OPEN_STATES).filter(ended_at__lt=now - timedelta(days=min(days)))
    last = 0
    while page := list(reached.filter(pk__gt=last).order_by("pk")[:AT_ONCE]):
        yield page
        last = page[-1].pk


def _told(jobs: list[Job]) -> Mapping[int, list[JobEvent]]:
    """By job, its events that say what is gone and which version is best."""
    found: dict[int, list[JobEvent]] = defaultdict(list)
    for event in JobEvent.objects.filter(job__in=jobs, kind__in=_READ).order_by("job_id", "seq"):
        found[event.job_id].append(event)
    return found


def _kept(jobs: list[Job]) -> Mapping[int, set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for job, version in Checkpoint.objects.filter(job__in=jobs).values_list("job_id", "version"):
        found[job].add(version)
    return found


def _begun_with(tenant: Tenant) -> Mapping[str, set[int]]:
    """By a job's public id, its versions that other jobs of the tenant begin with."""
    found: dict[str, set[int]] = defaultdict(set)
    origins = tenant.jobs.exclude(spec__warm_start=None).values_list("spec__warm_start__job", "spec__warm_start__version")
    for job, version in origins:
        found[job].add(version)
    return found


def _of_job(job: Job, wanted: Rules, now: datetime, told: list[JobEvent], protected: set[int]) -> Due:
    kinds = {event.kind for event in told}
    if "deleted" in kinds:
        return Due(job=job, completions=False, versions=())
    completions = _over(job, wanted.completions_days, now) and "completions_deleted" not in kinds
    versions: tuple[int, ...] = ()
    if _over(job, wanted.versions_days, now):
        gone = {event.data["version"] for event in told if event.kind == "version_deleted"}
        best = evaluation.best([event.data for event in told if event.kind == "eval"])
        versions = tuple(version for version in range(1, job.version) if version not in gone | protected | {best})
    return Due(job=job, completions=completions, versions=versions)


def _over(job: Job, days: int | None, now: datetime) -> bool:
    return days is not None and job.ended_at is not None and job.ended_at < now - timedelta(days=days)
