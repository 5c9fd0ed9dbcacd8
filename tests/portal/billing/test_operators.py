"""What operators do with money: in the records admin and by commands. Each leaves a row that says who and why."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.test import Client

from portal import env
from portal.billing import ledger, money
from portal.billing.models import Account, Entry, Plan, Price
from tenants.models import User
from tests.portal.billing.books import STEP_MICROS, Run, account, line
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World, with_factor


@pytest.fixture
def operator(world: World) -> Client:
    with_factor(User.objects.create_superuser("ops@example.org", "correct horse"))
    return world.client(User.objects.get(email="ops@example.org"))


def run(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out, stderr=out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("micros", "text"),
    [(0, "0.00 USD"), (1, "0.000001 USD"), (-1_500_000, "-1.50 USD"), (1_234_567_890_000, "1,234,567.89 USD"), (120, "0.00012 USD")],
)
def test_money_is_shown_exactly_and_read_back(micros: int, text: str) -> None:
    assert money.shown(micros) == text
    assert money.read(text.removesuffix(" USD").replace(",", "")) == micros


@pytest.mark.parametrize("text", ["", "abc", "1.0000001", "NaN", "Infinity", "1e99", "1e3", "1_000", "1٣", "1 0", ".", "1,5"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no amount"):
        money.read(text)


def test_credit_is_granted_in_the_admin_once_with_who_and_why(world: World, operator: Client) -> None:
    account(world.sums, 0)
    page = operator.get("/admin/billing/entry/add/").content.decode()
    key = re.search(r'name="key" value="([^"]+)"', page)[1]
    form = {"tenant": world.sums.pk, "amount": "12.50", "reason": "beta tester", "key": key}
    for _ in range(2):  # a double click
        assert operator.post("/admin/billing/entry/add/", form).status_code == 302
    entry = Entry.objects.get(source=key)
    assert (entry.amount_micros, entry.reason, entry.by) == (12_500_000, "beta tester", "ops@example.org")
    assert Account.objects.get(tenant=world.sums).balance_micros == 12_500_000
    assert LogEntry.objects.filter(object_id=str(entry.pk)).exists()


@pytest.mark.parametrize(
    ("change", "words"), [({"amount": "-5"}, "must be above 0"), ({"amount": "x"}, "is no amount"), ({"reason": " "}, "required")]
)
def test_a_bad_grant_is_told_beside_its_field(world: World, operator: Client, change: dict, words: str) -> None:
    answer = operator.post("/admin/billing/entry/add/", {"tenant": world.sums.pk, "amount": "1", "reason": "x", "key": "k", **change})
    assert answer.status_code == 200 and words in answer.content.decode()
    assert not Entry.objects.filter(source="k").exists()


def test_entries_and_prices_can_be_looked_at_and_not_changed(world: World, operator: Client) -> None:
    (entry,) = ledger.post(world.sums, [line()], NOW)
    price = Price.objects.first()
    for path in (f"/admin/billing/entry/{entry.pk}", f"/admin/billing/price/{price.pk}"):
        assert operator.get(f"{path}/change/").status_code == 200
        assert operator.post(f"{path}/change/", {"reason": "x"}).status_code == 403
        assert operator.post(f"{path}/delete/", {"post": "yes"}).status_code == 403
    for page in ("entry", "price", "plan", "quotaoverride", "account", "hold", "dailyusage"):
        assert operator.get(f"/admin/billing/{page}/").status_code == 200


def test_the_operator_sees_what_a_job_was_billed_for_an_hour_of_the_devices(world: World, operator: Client, engine: FakeEngine) -> None:
    account(world.sums, 100_000_000)
    run = Run(world, engine)
    run.step(1, seconds={"rollout": 1.5, "train": 0.3})
    run.store()
    shown = operator.get(f"/admin/billing/hold/{run.hold.pk}/change/").content.decode()
    assert money.shown(round(STEP_MICROS * 3600 / 1.8)) in shown and "Rollout seconds" in shown


def test_a_new_price_holds_from_a_moment_ahead_and_says_who_set_it(world: World, operator: Client) -> None:
    form = {"kind": "sampled", "model": "", "micros_per_million": "500000", "effective_from_1": "12:00:00"}
    late = operator.post("/admin/billing/price/add/", {**form, "effective_from_0": "2020-01-01"})
    assert "must lie ahead" in late.content.decode()
    day = f"{datetime.now(UTC) + timedelta(days=9):%Y-%m-%d}"
    assert operator.post("/admin/billing/price/add/", {**form, "effective_from_0": day}).status_code == 302
    assert Price.objects.get(micros_per_million=500_000).set_by == "ops@example.org"


def test_choosing_a_plan_never_writes_the_balance(world: World, operator: Client) -> None:
    found = account(world.sums, 1000)
    small = Plan.objects.create(key="small", name="Small", steps=10)
    assert operator.post(f"/admin/billing/account/{found.pk}/change/", {"plan": small.pk, "balance_micros": "7"}).status_code == 302
    found.refresh_from_db()
    assert (found.plan, found.balance_micros) == (small, 1000)


def test_the_command_grants_once_per_key(world: World) -> None:
    account(world.sums, 0)
    words = ("grant_credit", world.sums.public_id, "3.5", "--reason", "beta", "--by", "ops", "--key", "t-1")
    assert [run(*words) for _ in range(2)] == [f"{world.sums} has 3.50 USD\n"] * 2


@pytest.mark.parametrize(
    ("tenant", "amount", "words"), [("ten_x", "1", "no tenant"), (None, "abc", "is no amount"), (None, "-1", "above 0")]
)
def test_the_command_says_what_is_wrong(world: World, tenant: str | None, amount: str, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        run("grant_credit", tenant or world.sums.public_id, amount, "--reason", "x", "--by", "o", "--key", "k") if amount != "-1" else run(
            "grant_credit", "--reason", "x", "--by", "o", "--key", "k", "--", world.sums.public_id, amount
        )


def test_an_entry_is_reversed_by_its_number(world: World) -> None:
    account(world.sums, 1000)
    (entry,) = ledger.post(world.sums, [line()], NOW)
    assert "0.0004 USD for Sums" in run("reverse_entry", str(entry.pk), "--reason", "our error", "--by", "ops")
    with pytest.raises(CommandError, match="no entry"):
        run("reverse_entry", "999999", "--reason", "x", "--by", "o")


def test_the_check_names_an_account_that_does_not_add_up(world: World) -> None:
    account(world.sums, 1000)
    assert "1 accounts, 0 unsound" in run("check_billing")
    Account.objects.update(held_micros=1)
    with pytest.raises(SystemExit):
        run("check_billing")


@pytest.mark.parametrize(
    ("name", "value"), [("STARTING_CREDIT", "1.0000001"), ("STARTING_CREDIT", "-1"), ("STARTING_CREDIT", "NaN"), ("CURRENCY", "usd")]
)
def test_a_bad_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"MARLAAS_{name}", value)
    with pytest.raises(env.BadSettings, match=f"MARLAAS_{name}"):
        env.load()
