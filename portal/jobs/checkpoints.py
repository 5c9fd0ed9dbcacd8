"""A job's committed versions: what is known of each, which are kept, which are gone, and letting go of one for good."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from portal import gateway
from portal.errors import Conflict, Invalid
from portal.jobs import engines, evaluation, series
from portal.jobs.models import Checkpoint, Job
from portal.names import check_typed
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """``gone``: its files were deleted. ``latest`` goes with the job only."""

    version: int
    at: datetime | None
    reward: float | None
    held_out: float | None
    kept: bool
    gone: bool
    best: bool
    latest: bool


def lines(job: Job, first: int, last: int) -> list[Line]:
    """Versions ``first`` to ``last``, the newest first."""
    found = series.exact(job, first, last)
    told = evaluation.summary(job)
    held_out = {one["version"]: one["reward_mean"] for one in told["evaluations"]}
    kept, gone, everything = _kept(job), deleted(job), all_deleted(job)
    return [
        Line(
            version=version,
            at=datetime.fromtimestamp(at, UTC),
            reward=reward,
            held_out=held_out.get(version),
            kept=version in kept,
            gone=everything or version in gone,
            best=version == told["best"],
            latest=version == job.version,
        )
        for version, at, reward in reversed(list(zip(found["versions"], found["at"], found["columns"].get("reward", []), strict=False)))
    ]


def deleted(job: Job) -> set[int]:
    return set(job.events.filter(kind="version_deleted").values_list("data__version", flat=True))


def all_deleted(job: Job) -> bool:
    return job.events.filter(kind="deleted").exists()


def completions_gone(job: Job) -> bool:
    """What it sampled was deleted, alone or with everything."""
    return job.events.filter(kind__in=("deleted", "completions_deleted")).exists()


def keep(tenant: Tenant, user: User, job: Job, version: int, now: datetime, *, kept: bool) -> None:
    """A kept version cannot be deleted until it is let go of. Raises ``Invalid``, ``Conflict``, ``Forbidden``."""
    require(tenant, user, Role.MEMBER)
    _there(job, version)
    with transaction.atomic():
        if not kept:
            Checkpoint.objects.filter(tenant=tenant, job=job, version=version).delete()
            return
        Checkpoint.objects.get_or_create(tenant=tenant, job=job, version=version, defaults={"kept_at": now, "kept_by": user})


def delete(tenant: Tenant, user: User, job: Job, version: int, typed: str) -> None:
    """Gone everywhere, for good; ``typed`` must name it. Raises ``Invalid``, ``Conflict``, ``Forbidden``, ``gateway.EngineDown``.

    The page changes when the engine's event arrives. Asked again, the engine finishes what was begun.
    """
    require(tenant, user, Role.MEMBER)
    _there(job, version)
    check_typed(typed, f"v{version}")
    if version in _kept(job):
        raise Conflict([("version", f"version {version} is kept; let go of it first")])
    _ask(lambda: engines.of(job).delete_version(job.public_id, version), "version")
    audit.record(tenant, user, "checkpoint.deleted", job, version=version)


def delete_all(tenant: Tenant, user: User, job: Job, typed: str) -> None:
    """All versions, completions and evaluated rows of an ended job; its history stays. Kept versions stand against it."""
    require(tenant, user, Role.MEMBER)
    check_typed(typed, job.name)
    if kept := sorted(_kept(job)):
        raise Conflict([("version", f"version {kept[0]} is kept; let go of it first")])
    _ask(lambda: engines.of(job).delete(job.public_id), "job")
    audit.record(tenant, user, "checkpoint.deleted", job, version="all")


def _ask(call: Any, field: str) -> None:
    try:
        call()
    except gateway.EngineRefused as refused:
        raise Conflict([(field, str(refused))]) from refused


def _there(job: Job, version: int) -> None:
    if not 1 <= version <= job.version:
        raise Invalid([("version", f"{job.name} has versions 1 to {job.version}" if job.version else f"{job.name} has no version yet")])


def _kept(job: Job) -> set[int]:
    return set(Checkpoint.objects.filter(job=job).values_list("version", flat=True))
