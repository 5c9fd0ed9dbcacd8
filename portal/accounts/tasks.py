"""Celery's part of accounts: purging what was deleted, and trying again until it is gone."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from portal.celery import app
from tenants.models import Tenant


@app.task(name="portal.accounts.tasks.purge", ignore_result=True)
def purge(tenant_pk: int) -> None:
    from portal.accounts import deletion

    deletion.purge(Tenant.objects.get(pk=tenant_pk), timezone.now())


@app.task(name="portal.accounts.tasks.sweep", ignore_result=True)
def sweep() -> None:
    """What a lost task, an engine that was down, or a job that was still ending left behind."""
    for tenant in Tenant.objects.filter(purged_at=None).exclude(deleted_at=None):
        purge(tenant.pk)


def purge_on_commit(tenant: Tenant) -> None:
    transaction.on_commit(lambda: purge.apply_async((tenant.pk,), retry=False), robust=True)
