from __future__ import annotations

import statistics
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction

from portal.billing import ledger, usage
from portal.billing.models import DailyUsage, Entry, Kind
from tenants.models import Tenant

CHUNK = 5000
KINDS = (Kind.PREFILL, Kind.SAMPLED, Kind.TRAINED, Kind.JUDGE)
PRICE = 400_000


class Command(BaseCommand):
    help = (
        "How long the sums of the usage page take over a ledger of many rows. They are made in one transaction that is rolled back; "
        "on SQLite nobody else can write meanwhile."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, default=5_000_000, help="entries of one tenant in this month")
        parser.add_argument("--jobs", type=int, default=300, help="jobs that they are of")

    def handle(self, *, rows: int, jobs: int, **_: Any) -> None:
        now = datetime.now(UTC)
        with transaction.atomic():
            tenant = Tenant.objects.create(name="Bench")
            seconds = _timed(lambda: _fill(tenant, rows, jobs, now))
            self.stdout.write(f"{rows:,} entries of {jobs:,} jobs, made in {seconds:.0f} s")
            month = usage.month_of(None, now)
            for name in ("day", "source", "model", "kind"):
                self._tell(f"the month by {name}", lambda name=name: usage.by(tenant, month, name))
            self._tell("all that the page asks for", lambda: [usage.by(tenant, month, name) for name in ("day", "source", "model", "kind")])
            step = iter(range(10**9, 10**9 + 100))
            self._tell("one step's entries and sums", lambda: ledger.post(tenant, list(_step(next(step), now)), now))
            self._tell("the audit of the balance", lambda: ledger.audit(tenant), times=1)
            transaction.set_rollback(True)

    def _tell(self, what: str, work: Any, times: int = 5) -> None:
        found = [_timed(work) for _ in range(times)]
        self.stdout.write(f"{what}: {statistics.median(found) * 1000:,.0f} ms")


def _timed(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _step(step: int, at: datetime, job: str = "job_bench") -> Iterator[ledger.Line]:
    for kind in KINDS:
        yield ledger.Line(
            source_type="job", source=job, step=step, attempt=1, kind=kind, model="tiny-math", quantity=1000, price_micros=PRICE, at=at
        )


def _fill(tenant: Tenant, rows: int, jobs: int, now: datetime) -> None:
    """Straight into the tables, with the days and the balance that the ledger would have made of it."""
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    account = ledger.account_of(tenant, now)
    chunk: list[Entry] = []
    days: dict[tuple[Any, ...], list[int]] = {}
    for number in range(rows):
        step, kind = divmod(number, len(KINDS))
        at = first + timedelta(days=step % now.day)
        entry = Entry(tenant=tenant, at=at, created_at=at, source_type="job", source=f"job_{step % jobs}", step=step, attempt=1)
        entry.kind, entry.model, entry.quantity, entry.price_micros = KINDS[kind].value, "tiny-math", 1000, PRICE
        entry.amount_micros = -ledger.price_of(1000, PRICE)
        sums = days.setdefault((at.date(), entry.source, entry.kind), [0, 0])
        sums[0], sums[1] = sums[0] + entry.quantity, sums[1] + entry.amount_micros
        chunk.append(entry)
        if len(chunk) == CHUNK or number == rows - 1:
            Entry.objects.bulk_create(chunk)
            chunk = []
    of_days = [
        DailyUsage(tenant=tenant, day=day, source_type="job", source=job, model="tiny-math", kind=kind, quantity=q, amount_micros=a)
        for (day, job, kind), (q, a) in days.items()
    ]
    DailyUsage.objects.bulk_create(of_days, batch_size=CHUNK)
    type(account).objects.filter(pk=account.pk).update(balance_micros=account.balance_micros - rows * ledger.price_of(1000, PRICE))
