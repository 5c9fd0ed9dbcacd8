from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from portal.billing import ledger
from portal.billing.models import Entry
from tenants.models import Tenant
from tests.portal.billing.books import line
from tests.portal.world import NOW, World


def test_the_bench_measures_and_leaves_nothing(world: World) -> None:
    out = StringIO()
    call_command("bench_usage", "--rows", "403", "--jobs", "7", stdout=out)
    told = out.getvalue()
    assert "403 entries of 7 jobs" in told and "all that the page asks for" in told and "the audit of the balance" in told
    assert not Entry.objects.exists() and not Tenant.objects.filter(name="Bench").exists()


@pytest.mark.parametrize("entries", [10, 1000])
def test_the_usage_page_asks_as_much_however_many_entries_there_are(world: World, entries: int, django_assert_max_num_queries: Any) -> None:
    ledger.post(world.sums, [line(step=step, at=NOW) for step in range(entries)], NOW)
    client = world.client(world.alice)
    with django_assert_max_num_queries(30) as asked:
        assert client.get("/usage/?month=2026-01").status_code == 200
    ledgers = [query["sql"] for query in asked.captured_queries if '"billing_entry"' in query["sql"]]
    assert len(ledgers) == 1 and "LIMIT" in ledgers[0]  # the newest corrections; sums come from the days
