"""A job that begins with a version of another one of the tenant's: checked here, so that the form can name the field."""

from __future__ import annotations

from typing import Any

from engine.spec import JobSpec, LoraSpec, WarmStart
from portal.jobs.checkpoints import all_deleted, deleted
from portal.jobs.models import Job
from tenants.models import Tenant

SECTION = "warm_start"
JOBS_OFFERED = 100


def resolved(tenant: Tenant, raw: dict[str, Any], problems: list[tuple[str, str]]) -> dict[str, Any]:
    """``raw`` with the latest version in the place of none. Jobs of other tenants do not exist here."""
    wanted = raw.get(SECTION)
    if not isinstance(wanted, dict) or not isinstance(wanted.get("job"), str):
        return raw  # the schema says what is wrong with it, if anything is
    job = find(tenant, wanted["job"])
    if job is None:
        problems.append((f"{SECTION}.job", f"there is no job {wanted['job'][:40]!a}"))
        return _without(raw)
    if wanted.get("version") is None:
        return {**raw, SECTION: {**wanted, "version": job.version}}
    return raw


def problems_of(tenant: Tenant, spec: JobSpec) -> list[tuple[str, str]]:
    """What stands against beginning with it: the version, and an adapter of another shape."""
    wanted = spec.warm_start
    if wanted is None or (job := find(tenant, wanted.job)) is None:
        return []
    found = _differences(spec, job)
    if job.version == 0:
        found.append((f"{SECTION}.job", f"{job.name} has committed no version yet"))
    elif wanted.version > job.version:
        found.append((f"{SECTION}.version", f"{job.name} has versions up to {job.version}"))
    elif all_deleted(job) or wanted.version in deleted(job):
        found.append((f"{SECTION}.version", f"version {wanted.version} of {job.name} was deleted"))
    return found


def find(tenant: Tenant, public_id: str) -> Job | None:
    return None if "\0" in public_id else tenant.jobs.filter(public_id=public_id).first()


def choices(tenant: Tenant, chosen: str = "") -> list[tuple[str, str]]:
    """The newest jobs that have something to begin with, and the one already chosen."""
    offered = {job.public_id: job for job in tenant.jobs.filter(version__gt=0)[:JOBS_OFFERED]}
    if chosen and chosen not in offered and (job := find(tenant, chosen)):
        offered[chosen] = job
    return [("", "A fresh adapter"), *((key, f"{job.name} · {job.version:,} versions") for key, job in offered.items())]


def origin(tenant: Tenant, spec: dict[str, Any]) -> tuple[WarmStart, Job | None] | None:
    """What a job began with, and that job if it is still there."""
    wanted = spec.get(SECTION)
    return (WarmStart(**wanted), find(tenant, wanted["job"])) if wanted else None


def _differences(spec: JobSpec, job: Job) -> list[tuple[str, str]]:
    theirs = LoraSpec.model_validate(job.spec["lora"])
    pairs = [
        ("base_model", spec.base_model, job.base_model),
        ("lora.rank", spec.lora.rank, theirs.rank),
        ("lora.alpha", spec.lora.alpha, theirs.alpha),
        ("lora.target_modules", ", ".join(spec.lora.target_modules), ", ".join(theirs.target_modules)),
    ]
    return [(field, f"must be {other}, as in {job.name}, which this job begins with") for field, own, other in pairs if own != other]


def _without(raw: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key != SECTION}
