from __future__ import annotations

from typing import Any

import pytest

from portal.billing import ledger
from portal.billing.models import DailyUsage, Entry
from tests.load import usage as load
from tests.portal.billing.books import line
from tests.portal.world import NOW, World


def test_what_the_load_makes_is_what_the_ledger_would_have_made(world: World) -> None:
    before = ledger.account_of(world.sums, NOW).balance_micros
    load.fill(world.sums, 403, 7, NOW)
    found = load.measure(world.alice, world.sums, NOW)
    steps = load.TIMES * len(load.KINDS)
    assert found["sound"] and found["ms"].keys() >= {"page_this_month", "page_last_month", "audit"}
    assert Entry.objects.filter(kind__in=load.KINDS).count() == 403 + steps
    assert ledger.account_of(world.sums, NOW).balance_micros == before + (403 + steps) * load.AMOUNT
    days = DailyUsage.objects.values_list("day", flat=True)
    assert len({source for source in DailyUsage.objects.values_list("source", flat=True)}) == 7 and len(set(days)) > load.DAYS // 2


@pytest.mark.parametrize("entries", [10, 1000])
def test_the_usage_page_asks_as_much_however_many_entries_there_are(world: World, entries: int, django_assert_max_num_queries: Any) -> None:
    ledger.post(world.sums, [line(step=step, at=NOW) for step in range(entries)], NOW)
    client = world.client(world.alice)
    with django_assert_max_num_queries(30) as asked:
        assert client.get("/usage/?month=2026-01").status_code == 200
    ledgers = [query["sql"] for query in asked.captured_queries if '"billing_entry"' in query["sql"]]
    assert len(ledgers) == 1 and "LIMIT" in ledgers[0]  # the newest corrections; sums come from the days
