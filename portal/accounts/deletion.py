"""Deleting an organisation: closed at once, gone soon after, piece by piece.

Everything that it owned goes: files, adapters, rows. What billing has to keep stays (entries of the ledger with their tenant's row, without
its name). Each piece may be deleted twice, so a purge that was cut off begins again; the sweeper calls it until nothing is left.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import structlog
from django.apps import apps
from django.db import models, transaction
from django.db.models import ProtectedError

from portal import gateway
from portal.accounts import tasks
from portal.billing.models import Hold
from portal.datasets import removal
from portal.jobs import actions as job_actions
from portal.jobs import engines
from portal.jobs.models import OPEN_STATES, Job
from tenants import audit
from tenants.access import Refused, require
from tenants.models import Role, Tenant, User

log = structlog.get_logger(__name__)
KEPT_FOR_BILLING = "billing"
NAME_OF_THE_DELETED = "Deleted organisation"


def check_meant(tenant: Tenant, user: User, confirm: str) -> None:
    """Owners only, and they type its name. Raises ``Forbidden``, ``Refused``."""
    require(tenant, user, Role.OWNER)
    if confirm.strip() != tenant.name:
        raise Refused("confirm", f"write the organisation's name, {tenant.name}, to delete it")


def delete_tenant(tenant: Tenant, user: User, confirm: str, now: datetime) -> None:
    """Nobody belongs to it from this moment on. Raises as ``check_meant`` does."""
    check_meant(tenant, user, confirm)
    with transaction.atomic():
        audit.record(tenant, user, "organisation.deleted", tenant)
        if not Tenant.objects.filter(pk=tenant.pk, deleted_at=None).update(deleted_at=now):
            raise Refused("confirm", "it is being deleted already")
        for job in tenant.jobs.filter(state__in=OPEN_STATES):
            job_actions.cancel_job(tenant, user, job, now)
        tenant.api_tokens.filter(revoked_at=None).update(revoked_at=now)
        tenant.invitations.filter(accepted_at=None, withdrawn_at=None).update(withdrawn_at=now)
        for membership in tenant.memberships.all():
            membership.delete()  # one by one: each tells the person's open connections
        log.info("tenant_deleted", tenant=tenant.public_id, by=user.email)
        tasks.purge_on_commit(tenant)


def purge(tenant: Tenant, now: datetime) -> bool:
    """Whether it is all gone now; False while a job is not yet cancelled or the engine cannot be reached."""
    if tenant.deleted_at is None:
        raise ValueError(f"{tenant.public_id} was not deleted by its owner")
    if tenant.purged_at is not None:
        return True
    if tenant.jobs.filter(state__in=OPEN_STATES).exists() or not all(map(_forget_adapters, tenant.jobs.all())):
        return False
    _remove_files(tenant)
    _remove_rows(tenant)
    Tenant.objects.filter(pk=tenant.pk).update(name=NAME_OF_THE_DELETED, suspended_reason="", purged_at=now)
    log.info("tenant_purged", tenant=tenant.public_id)
    return True


def owned_models() -> Iterator[Any]:
    """Every model whose rows belong to a tenant."""
    for model in apps.get_models():
        if any(field.name == "tenant" and isinstance(field, models.ForeignKey) for field in model._meta.local_fields):
            yield model


def _forget_adapters(job: Job) -> bool:
    """Versions, batches and optimizer of a job, on the engine's disk."""
    try:
        engines.of(job).delete(job.public_id)
    except gateway.EngineRefused as refused:
        return refused.status == 404  # it never reached the engine, or is gone
    except gateway.EngineDown as down:
        log.warning("purge_waits", job=job.public_id, reason=str(down))
        return False
    return True


def _remove_files(tenant: Tenant) -> None:
    """Uploads, and the blobs that no other organisation has the same bytes of."""
    for upload in tenant.uploads.all():
        shutil.rmtree(upload.folder, ignore_errors=True)
    refs = [ref for dataset in tenant.datasets.all() for ref in removal.blobs_of(dataset)]
    removal.remove_blobs(refs, tenant.deleted_at, besides=tenant)


def _remove_rows(tenant: Tenant) -> None:
    """Round by round, since some rows protect others; a round that removes nothing while something is left is a fault of ours."""
    with transaction.atomic():
        Hold.objects.filter(tenant=tenant).delete()
        left = [model for model in owned_models() if model._meta.app_label != KEPT_FOR_BILLING]
        while left:
            again = [model for model in left if not _remove(model, tenant)]
            if len(again) == len(left):
                raise RuntimeError(f"rows of {', '.join(model.__name__ for model in again)} cannot be deleted")
            left = again


def _remove(model: Any, tenant: Tenant) -> bool:
    try:
        with transaction.atomic():
            model._base_manager.filter(tenant=tenant).delete()
    except ProtectedError:
        return False
    return True
