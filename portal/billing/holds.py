"""Money set aside for jobs. A reservation is one conditional update: however many ask at once, no more is held than there is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from portal.billing import ledger
from portal.billing.models import Account, Hold
from portal.jobs.models import Job


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
        return Hold.objects.create(tenant_id=job.tenant_id, job=job, micros=micros, **terms)


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
