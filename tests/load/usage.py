"""``python -m tests.load.usage --json F``: the usage page over a ledger of millions of entries, in a database made for it.

The entries are made by the database itself, with the days and the balance that the ledger would have made of them; then the page, its
sums, a step's writing and the audit are timed as they are. ``--postgres`` takes a PostgreSQL of its own, else SQLite.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

MOST_SECONDS = 0.3
KINDS = ("prefill", "sampled", "trained", "judge")
QUANTITY, PRICE = 1000, 400_000
AMOUNT = -(QUANTITY * PRICE // 1_000_000)
DAYS = 60  # that the entries are spread over: this month and the last are full
TIMES = 7

# Entry number n is kind n % 4 of step n / 4; job and day follow from the step, so that a job runs for about a day.
_ENTRIES = """
INSERT INTO billing_entry (tenant_id, at, created_at, source_type, source, step, attempt, kind, model, quantity, price_micros,
                           amount_micros, reason, "by", overage_micros)
{numbers}
SELECT {tenant}, {at}, {at}, 'job', 'job_bench' || (n / 4 * {jobs} / {steps}), n / 4, 1,
       CASE n % 4 WHEN 0 THEN 'prefill' WHEN 1 THEN 'sampled' WHEN 2 THEN 'trained' ELSE 'judge' END,
       'tiny-math', {quantity}, {price}, {amount}, '', '', 0
FROM numbers
"""
_DAYS = """
INSERT INTO billing_dailyusage (tenant_id, day, source_type, source, model, kind, quantity, amount_micros)
SELECT tenant_id, {day}, source_type, source, model, kind, sum(quantity), sum(amount_micros)
FROM billing_entry WHERE tenant_id = {tenant} AND kind IN ('prefill', 'sampled', 'trained', 'judge')
GROUP BY tenant_id, {day}, source_type, source, model, kind
"""
_DIALECTS = {
    "sqlite": {
        "numbers": "WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {rows})",
        "at": "strftime('%Y-%m-%d %H:%M:%S', {start}, 'unixepoch', '+' || CAST(n * {seconds} / {rows} AS INTEGER) || ' seconds')",
        "day": "date(at)",
    },
    "postgresql": {
        "numbers": "WITH numbers AS (SELECT n::bigint FROM generate_series(0, {rows} - 1) AS n)",
        "at": "to_timestamp({start} + n * {seconds} / {rows})",
        "day": "(at AT TIME ZONE 'UTC')::date",
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when the median of the page's time is below 300 ms, in this month and in the last one."""
    options = parser().parse_args(arguments)
    with _database(on_postgres=options.postgres):
        found = _measured(options.rows, options.jobs)
    text = json.dumps(found, indent=2)
    print(text)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n")
    return 0 if found["holds"] else 1


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tests.load.usage", description=(__doc__ or "").partition("\n")[0])
    found.add_argument("--rows", type=int, default=5_000_000, help="entries of one tenant")
    found.add_argument("--jobs", type=int, default=600, help="jobs that they are of, one after the other")
    found.add_argument("--postgres", action="store_true", help="PostgreSQL instead of SQLite")
    found.add_argument("--json", type=Path, help="write the figures here as well")
    return found


@contextmanager
def _database(*, on_postgres: bool) -> Iterator[None]:
    """Django on an empty database of its own."""
    from tests.support import postgres

    with tempfile.TemporaryDirectory(prefix="usage-") as folder:
        os.environ |= {"DJANGO_SETTINGS_MODULE": "portal.settings", "MARLAAS_STATE": folder}
        if not on_postgres:
            os.environ["DATABASE_URL"] = f"sqlite:///{folder}/usage.sqlite3"
            yield
            return
        with postgres.server() as url:
            os.environ["DATABASE_URL"] = url
            yield
            from django.db import connection

            connection.close()
            connection.close_pool()


def _measured(rows: int, jobs: int) -> dict[str, Any]:
    import django

    django.setup()
    logging.disable(logging.ERROR)  # there is no broker here, and nobody to be told
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from tenants.actions import create_tenant
    from tenants.models import User

    now = datetime.now(UTC)
    person = User.objects.create_user("bench@example.org", "not needed")
    tenant = create_tenant(person, "Bench")
    seconds = fill(tenant, rows, jobs, now)
    return {"rows": rows, "jobs": jobs, "fill_seconds": round(seconds, 1), **measure(person, tenant, now)}


def fill(tenant: Any, rows: int, jobs: int, now: datetime) -> float:
    """So many entries of the last days, and what the ledger keeps beside them; the seconds that it took."""
    from django.db import connection
    from django.db.models import F

    from portal.billing import ledger

    account, started = ledger.account_of(tenant, now), time.perf_counter()
    words = {"rows": rows, "tenant": tenant.pk, "jobs": jobs, "steps": -(-rows // len(KINDS))}
    words |= {"start": int((now - timedelta(days=DAYS)).timestamp()), "seconds": DAYS * 86400}
    words |= {"quantity": QUANTITY, "price": PRICE, "amount": AMOUNT}
    words |= {name: sql.format(**words) for name, sql in _DIALECTS[connection.vendor].items()}
    with connection.cursor() as cursor:
        cursor.execute(_ENTRIES.format(**words))
        cursor.execute(_DAYS.format(**words))
        cursor.execute("ANALYZE")
    type(account).objects.filter(pk=account.pk).update(balance_micros=F("balance_micros") + rows * AMOUNT)
    return time.perf_counter() - started


def measure(person: Any, tenant: Any, now: datetime) -> dict[str, Any]:
    """Milliseconds, each the median of a few; the page by way of the whole stack of middleware."""
    from django.conf import settings
    from django.test import Client

    from portal.billing import ledger, usage

    client = Client(SERVER_NAME=next(iter(settings.ALLOWED_HOSTS), "localhost").lstrip(".*") or "localhost")
    client.force_login(person)
    month = usage.month_of(None, now)
    steps = iter(range(2 * 10**9, 2 * 10**9 + 100))
    found = {
        "page_this_month": _timed(lambda: _seen(client, f"/usage/?month={month.key}")),
        "page_last_month": _timed(lambda: _seen(client, f"/usage/?month={month.previous.key}")),
        "sums_by_source": _timed(lambda: usage.by(tenant, month.previous, "source")),
        "billing_page": _timed(lambda: _seen(client, "/billing/")),
        "newest_entries": _timed(lambda: list(tenant.entries.all()[:51])),
        "a_steps_entries": _timed(lambda: ledger.post(tenant, list(_step(next(steps), now)), now)),
    }
    audit = _timed(lambda: ledger.audit(tenant), times=1)
    sound = ledger.audit(tenant).sound
    pages = (found["page_this_month"], found["page_last_month"])
    return {"ms": {**found, "audit": audit}, "sound": sound, "holds": sound and max(pages) < MOST_SECONDS * 1000}


def _seen(client: Any, path: str) -> None:
    answer = client.get(path)
    if answer.status_code != 200:
        raise RuntimeError(f"{path} answered {answer.status_code}")


def _step(step: int, at: datetime) -> Iterator[Any]:
    from portal.billing.ledger import Line

    for kind in KINDS:
        key = {"source_type": "job", "source": "job_bench0", "step": step, "attempt": 1, "kind": kind}
        yield Line(**key, model="tiny-math", quantity=QUANTITY, price_micros=PRICE, at=at)


def _timed(work: Callable[[], Any], times: int = TIMES) -> float:
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return round(statistics.median(taken) * 1000, 1)


if __name__ == "__main__":
    sys.exit(main())
