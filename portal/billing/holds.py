"""Money set aside for what is going to be used.

A reservation is one conditional update: however many ask at once, no more is held than there is.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import structlog
from django.db import transaction
from django.db.models import F

from portal.billing import ledger
from portal.billing.models import Account, Hold
from portal.jobs.models import Job
from tenants.models import Tenant

log = structlog.get_logger(__name__)


class NotCovered(Exception):
    """``needed`` micro-units were to be held, ``available`` are free."""

    def __init__(self, *, needed: int, available: int):
        self.needed, self.available = needed, available
        super().__init__(f"{needed} micro-units needed, {available} available")


def place(job: Job, micros: int, now: datetime, **terms: Any) -> Hold:
    """The job's one hold, of ``micros``; ``terms``: its other columns. Raises ``NotCovered`` and stores nothing."""
    with transaction.atomic():
        account = ledger.account_of(job.tenant, now)
        if not _reserve(account, micros):
            account.refresh_from_db()
            raise NotCovered(needed=micros, available=account.available_micros)
        hold: Hold = Hold.objects.create(tenant_id=job.tenant_id, job=job, source=job.public_id, micros=micros, **terms)
        return hold


def place_for(tenant: Tenant, source_type: str, source: str, micros: int, now: datetime, expires_at: datetime) -> Hold:
    """The one hold of what is no job, of at least ``micros``: asked for again, it is the same one. Raises ``NotCovered``.

    One that is closed stays so: what it was for has ended, and nothing is held.
    """
    key = {"tenant": tenant, "source_type": source_type, "source": source}
    hold: Hold
    with transaction.atomic():
        account = ledger.locked(tenant, now)
        hold, _ = Hold.objects.get_or_create(**key, defaults={"micros": 0, "expires_at": expires_at})
        missing = micros - hold.micros
        if hold.closed_at is None and missing > 0:
            if not _reserve(account, missing):
                raise NotCovered(needed=missing, available=account.available_micros)
            _change(hold, missing)
        Hold.objects.filter(pk=hold.pk, closed_at=None).update(expires_at=expires_at)
        return hold


def sweep(now: datetime) -> int:
    """Release what nobody released in time, since its process died; how many."""
    left = list(Hold.objects.select_related("tenant").filter(closed_at=None, expires_at__lt=now).order_by("pk")[:1000])
    for hold in left:
        log.warning("hold_expired", source_type=hold.source_type, source=hold.source, micros=hold.micros)
        release(hold, now)
    return len(left)


def raise_to(hold: Hold, micros: int, now: datetime) -> bool:
    """Hold at least ``micros``; False, and nothing changed, when the account does not cover the difference or the hold is closed."""
    with transaction.atomic():
        account = ledger.locked(hold.tenant, now)
        hold.refresh_from_db()
        missing = micros - hold.micros
        if hold.closed_at is not None:
            return False
        if missing > 0:
            if not _reserve(account, missing):
                return False
            _change(hold, missing)
    return True


def pay(hold: Hold, micros: int, now: datetime) -> None:
    """``micros`` were charged: so much less is held for the job, down to 0. What was charged above that is the balance's."""
    with transaction.atomic():
        ledger.locked(hold.tenant, now)
        hold.refresh_from_db()
        _free(hold, min(micros, hold.micros))


def release(hold: Hold, now: datetime) -> None:
    """The job is over: nothing is held for it from now on. Twice is once."""
    with transaction.atomic():
        ledger.locked(hold.tenant, now)
        hold.refresh_from_db()
        if hold.closed_at is None:
            _free(hold, hold.micros)
            Hold.objects.filter(pk=hold.pk).update(closed_at=now)
            hold.closed_at = now


def _reserve(account: Account, micros: int) -> bool:
    if micros < 0:
        raise ValueError(f"a reservation of {micros} micro-units")
    free = Account.objects.filter(pk=account.pk, balance_micros__gte=F("held_micros") + micros - F("credit_line_micros"))
    return bool(free.update(held_micros=F("held_micros") + micros))


def _free(hold: Hold, micros: int) -> None:
    if micros:
        Account.objects.filter(tenant_id=hold.tenant_id).update(held_micros=F("held_micros") - micros)
        _change(hold, -micros)


def _change(hold: Hold, micros: int) -> None:
    Hold.objects.filter(pk=hold.pk).update(micros=F("micros") + micros)
    hold.refresh_from_db(fields=["micros"])
