"""A dataset's end: its row, and the bytes that no other dataset has as well.

A job pins its rows: a resume reads them again, and a result without them could not be reproduced. So what jobs were made of stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import structlog
from django.conf import settings
from django.db import models, transaction

from engine.blobs import BlobStore
from engine.spec import BlobRef
from portal.datasets.models import Dataset
from portal.errors import Conflict
from portal.rewards.probe_models import OPEN_STATES as OPEN_PROBES
from tenants import audit, walls_rows
from tenants.access import require
from tenants.models import Role, Tenant, User

log = structlog.get_logger(__name__)


def delete_dataset(tenant: Tenant, user: User, dataset: Dataset, now: datetime) -> None:
    """For good. Raises ``Conflict`` while something needs it, ``Forbidden`` for viewers."""
    require(tenant, user, Role.MEMBER)
    with transaction.atomic():
        tenant.datasets.select_for_update().get(pk=dataset.pk)  # a job that is just being made of it comes before or after
        if reason := in_use(dataset):
            raise Conflict([("dataset", reason)])
        audit.record(tenant, user, "dataset.deleted", dataset, rows=dataset.rows)
        refs = blobs_of(dataset)
        dataset.delete()
        transaction.on_commit(lambda: remove_blobs(refs, now), robust=True)


def in_use(dataset: Dataset) -> str:
    """Why it cannot go now, or ""."""
    if jobs := dataset.jobs.count():
        return f"{_jobs(jobs)} made of it, and what a job learned from stays"
    return "a probe is running on it; stop that first" if dataset.probes.filter(state__in=OPEN_PROBES).exists() else ""


def blobs_of(dataset: Dataset) -> list[BlobRef]:
    return [ref for split in ("train", "eval") if (ref := dataset.blob(split))]


def remove_blobs(refs: Iterable[BlobRef], gone_at: datetime, *, besides: Tenant | None = None) -> None:
    """The files of ``refs``, unless a dataset (``besides`` one tenant's, which are going too) has the same bytes, or they were written
    since: then somebody is just storing them.
    """
    root = BlobStore(settings.BLOBS_DIR).root
    for ref in refs:
        path = root / ref.sha256[:2] / ref.sha256
        if not _is_used(ref, besides) and path.exists() and path.stat().st_mtime <= gone_at.timestamp():
            path.unlink(missing_ok=True)


def _is_used(ref: BlobRef, besides: Tenant | None) -> bool:
    same = models.Q(train_sha256=ref.sha256) | models.Q(eval_sha256=ref.sha256)
    with walls_rows.everything():
        return Dataset.objects.filter(same).exclude(tenant=besides).exists()


def _jobs(count: int) -> str:
    return "one job was" if count == 1 else f"{count:,} jobs were"
