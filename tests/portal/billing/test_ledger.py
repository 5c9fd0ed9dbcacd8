from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction

from portal.billing import ledger
from portal.billing.models import Account, AppendOnly, DailyUsage, Entry, Kind
from portal.errors import Conflict, Invalid
from tests.portal.billing.books import account, line
from tests.portal.world import NOW, World


@pytest.mark.parametrize(
    ("quantity", "price", "micros"),
    [
        (1, 400_000, 0),
        (1, 500_000, 1),
        (1, 499_999, 0),
        (3, 500_000, 2),
        (1_000_000, 400_000, 400_000),
        (7, 10**9, 7000),
        (10**9, 10**9, 10**12),
    ],
)
def test_a_price_is_rounded_once_to_the_nearest_micro_unit_halves_up(quantity: int, price: int, micros: int) -> None:
    assert ledger.price_of(quantity, price) == micros


def test_a_new_tenant_has_the_starting_credit_once(world: World, settings) -> None:
    settings.STARTING_CREDIT_MICROS = 5_000_000
    for _ in range(3):
        assert ledger.account_of(world.sums, NOW).balance_micros == 5_000_000
    assert Entry.objects.get().reason == "starting credit"


def test_without_starting_credit_the_account_is_empty(world: World, settings) -> None:
    settings.STARTING_CREDIT_MICROS = 0
    assert (ledger.account_of(world.sums, NOW).balance_micros, Entry.objects.count()) == (0, 0)


def test_lines_move_balance_and_daily_usage_together(world: World) -> None:
    account(world.sums, 10_000)
    ledger.post(world.sums, [line(1, quantity=2500), line(1, Kind.TRAINED, 1000, price_micros=600_000), line(2, quantity=500)], NOW)
    assert Account.objects.get(tenant=world.sums).balance_micros == 10_000 - 1000 - 600 - 200
    found = {(row.day, row.kind): (row.quantity, row.amount_micros) for row in DailyUsage.objects.all()}
    assert found == {(NOW.date(), "sampled"): (3000, -1200), (NOW.date(), "trained"): (1000, -600)}
    assert ledger.audit(world.sums).sound


def test_the_same_key_is_written_once_whatever_it_says_the_second_time(world: World) -> None:
    account(world.sums, 10_000)
    assert len(ledger.post(world.sums, [line(1), line(1, quantity=9)], NOW)) == 1
    assert ledger.post(world.sums, [line(1, quantity=2000), line(1, price_micros=1)], NOW) == []
    assert Entry.objects.get(source="job_a").quantity == 1000
    assert Account.objects.get(tenant=world.sums).balance_micros == 9_600


@pytest.mark.parametrize(
    "change", [{"attempt": 2}, {"source_type": "evaluation"}, {"source": "job_b"}, {"kind": Kind.JUDGE}, {"step": 2}], ids=str
)
def test_each_part_of_the_key_tells_two_lines_apart(world: World, change: dict) -> None:
    assert len(ledger.post(world.sums, [line(), line(**change)], NOW)) == 2


@pytest.mark.parametrize("quantity", [0, -1, 10**9 + 1])
def test_what_was_not_used_has_no_line(world: World, quantity: int) -> None:
    with pytest.raises(ValueError, match="must lie between"):
        ledger.post(world.sums, [line(1), line(2, quantity=quantity)], NOW)
    assert not Entry.objects.filter(source="job_a").exists()


def test_two_tenants_never_share_a_row(world: World) -> None:
    ledger.post(world.sums, [line()], NOW)
    ledger.post(world.other, [line()], NOW)
    assert [e.tenant for e in Entry.objects.filter(source="job_a")] == [world.other, world.sums]


def test_the_database_refuses_a_double_key_even_past_the_code(world: World) -> None:
    (entry,) = ledger.post(world.sums, [line()], NOW)
    entry.pk, entry._state.adding = None, True
    with pytest.raises(IntegrityError), transaction.atomic():
        entry.save()


@pytest.mark.parametrize("change", [{"amount_micros": -401}, {"amount_micros": 400}, {"quantity": 0, "amount_micros": 0}], ids=str)
def test_the_database_refuses_an_amount_that_is_not_quantity_times_price(world: World, change: dict) -> None:
    entry = ledger._entry(world.sums, line(), NOW)
    for name, value in change.items():
        setattr(entry, name, value)
    with pytest.raises(IntegrityError), transaction.atomic():
        entry.save()


def test_rows_are_never_changed_or_deleted(world: World) -> None:
    (entry,) = ledger.post(world.sums, [line()], NOW)
    for attempt in (
        entry.save,
        entry.delete,
        lambda: Entry.objects.update(reason="x"),
        lambda: Entry.objects.filter(pk=entry.pk).delete(),
        lambda: Entry.objects.bulk_update([entry], ["reason"]),
    ):
        with pytest.raises(AppendOnly):
            attempt()


def test_the_database_itself_refuses_to_change_a_row(world: World) -> None:
    ledger.post(world.sums, [line()], NOW)
    statements = ["UPDATE billing_entry SET amount_micros = 0", "UPDATE billing_price SET micros_per_million = 0"]
    if connection.vendor == "postgresql":
        statements += ["DELETE FROM billing_entry", "DELETE FROM billing_price"]
    for statement in statements:
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_a_reversal_is_a_row_and_takes_everything_back_once(world: World) -> None:
    account(world.sums, 10_000)
    (entry,) = ledger.post(world.sums, [line()], NOW)
    later = NOW + timedelta(days=3)
    first = ledger.reverse(entry, "charged in error", "ops@example.org", later)
    assert ledger.reverse(entry, "again", "ops@example.org", later) == first
    assert (first.amount_micros, first.reason, first.by) == (400, "charged in error", "ops@example.org")
    assert Account.objects.get(tenant=world.sums).balance_micros == 10_000
    assert [(row.day, row.quantity) for row in DailyUsage.objects.all()] == [(later.date(), -1000), (NOW.date(), 1000)]
    assert ledger.audit(world.sums).sound


def test_a_reversal_cannot_be_reversed_and_needs_a_reason(world: World) -> None:
    (entry,) = ledger.post(world.sums, [line()], NOW)
    with pytest.raises(Invalid, match="say why"):
        ledger.reverse(entry, " ", "ops@example.org", NOW)
    with pytest.raises(Invalid, match="reversal itself"):
        ledger.reverse(ledger.reverse(entry, "error", "ops@example.org", NOW), "error", "ops@example.org", NOW)


def test_a_reversed_line_stays_written_and_is_not_charged_anew(world: World) -> None:
    account(world.sums, 10_000)
    ledger.reverse(ledger.post(world.sums, [line()], NOW)[0], "error", "ops@example.org", NOW)
    assert ledger.post(world.sums, [line()], NOW) == []
    assert Account.objects.get(tenant=world.sums).balance_micros == 10_000


def test_a_grant_is_given_once_per_key(world: World) -> None:
    account(world.sums, 0)
    for _ in range(2):
        ledger.grant(world.sums, "ticket-7", 3_000_000, "beta", "ops@example.org", NOW)
    assert Account.objects.get(tenant=world.sums).balance_micros == 3_000_000
    with pytest.raises(Conflict, match="another amount"):
        ledger.grant(world.sums, "ticket-7", 1, "beta", "ops@example.org", NOW)


@pytest.mark.parametrize(
    ("micros", "reason", "by", "key", "field"),
    [
        (0, "x", "o", "k", "amount"),
        (-5, "x", "o", "k", "amount"),
        (1, " ", "o", "k", "reason"),
        (1, "x", "", "k", "by"),
        (1, "x", "o", "", "key"),
    ],
)
def test_a_grant_says_what_is_wrong_with_it(world: World, micros: int, reason: str, by: str, key: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        ledger.grant(world.sums, key, micros, reason, by, NOW)
    assert [name for name, _ in refused.value.problems] == [field]


def test_the_audit_notices_one_micro_unit(world: World) -> None:
    account(world.sums, 10_000)
    assert ledger.audit(world.sums).sound
    Account.objects.filter(tenant=world.sums).update(balance_micros=10_001)
    assert not ledger.audit(world.sums).sound
