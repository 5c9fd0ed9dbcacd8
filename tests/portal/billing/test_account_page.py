"""The billing page: what each role sees and may do there, with Stripe and without, and limits of what a month may cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import mail

from portal.billing import forecast, gate, ledger, limits
from portal.billing.models import Account, TopUp
from portal.billing.stripe_client import Stripe
from portal.errors import Invalid
from portal.jobs.actions import create_job
from tenants.access import Forbidden
from tests.fake_stripe import FakeStripe
from tests.portal.billing.books import STEP_MICROS, Run, account, line
from tests.portal.billing.till import DAY, Clock, deliver, plan, subscribe, topup
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World

PAGE = "/billing/"


def page(world: World, user: Any = None) -> str:
    answer = world.client(user or world.alice).get(PAGE)
    assert answer.status_code == 200
    return answer.content.decode()


def test_without_keys_it_says_that_the_operator_grants_credit(world: World) -> None:
    shown = page(world)
    assert "your operator grants credit" in shown and "Buy credit" not in shown
    answer = world.client(world.alice).post("/billing/credit/", {"amount": "50"})
    assert answer.status_code == 422 and "your operator grants credit" in answer.content.decode()
    assert not TopUp.objects.exists()


def test_the_test_mode_says_that_no_real_money_is_taken(world: World, stripe: Stripe) -> None:
    assert "no real money is taken" in page(world)


def test_buying_leads_to_stripe_where_the_policy_lets_the_form_go(world: World, stripe: Stripe) -> None:
    answer = world.client(world.alice).post("/billing/credit/", {"amount": "50.00"})
    assert answer.status_code == 303
    assert answer["Location"].startswith("https://checkout.stripe.com/")
    assert "form-action 'self' https://checkout.stripe.com https://billing.stripe.com" in answer["Content-Security-Policy"]
    assert TopUp.objects.get().micros == 50_000_000
    assert "not paid yet" in page(world)


@pytest.mark.parametrize(
    ("typed", "words"), [("", "required"), ("a lot", "is no amount"), ("0.001", "decimal places"), ("0.10", "must lie between")]
)
def test_a_bad_amount_is_told_beside_its_field(world: World, stripe: Stripe, typed: str, words: str) -> None:
    answer = world.client(world.alice).post("/billing/credit/", {"amount": typed})
    assert answer.status_code == 422 and words in answer.content.decode()
    assert not TopUp.objects.exists()


@pytest.mark.parametrize("path", ["credit/", "plan/", "portal/", "limits/"])
def test_members_and_viewers_look_and_change_nothing(world: World, stripe: Stripe, fake: FakeStripe, path: str) -> None:
    key = plan(fake).key
    for user in (world.bob, world.vera):
        assert world.client(user).post(f"{PAGE}{path}", {"amount": "50", "plan": key, "stop": "1"}).status_code == 403
        shown = page(world, user)
        assert "Owners and administrators" in shown and "Go to payment" not in shown
    assert not TopUp.objects.exists() and Account.objects.get(tenant=world.sums).stop_micros is None


def test_the_portal_and_a_plan_lead_to_stripe(world: World, stripe: Stripe, fake: FakeStripe) -> None:
    client = world.client(world.alice)
    assert client.post("/billing/portal/")["Location"].startswith("https://billing.stripe.com/")
    assert client.post("/billing/plan/", {"plan": plan(fake).key})["Location"].startswith("https://checkout.stripe.com/")
    back = client.post("/billing/plan/", {"plan": "nothing"}, follow=True)
    assert "Is not for sale" in back.content.decode()


def test_stripe_that_does_not_answer_is_said_and_nothing_is_lost(world: World, stripe: Stripe, fake: FakeStripe) -> None:
    fake.down = True
    answer = world.client(world.alice).post("/billing/credit/", {"amount": "50"})
    assert answer.status_code == 422 and "nothing was charged" in answer.content.decode()
    assert "Stripe does not answer" in world.client(world.alice).post("/billing/portal/", follow=True).content.decode()


def test_invoices_are_shown_with_their_lines_and_a_way_to_pay(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock) -> None:
    subscription = subscribe(stripe, fake, world, clock)
    fake.pays[fake.customer(world.sums.public_id)["id"]] = False
    clock.on(30 * DAY)
    invoice = fake.finalize(fake.end_period(subscription)["id"])
    deliver(fake, stripe, clock())
    shown = page(world)
    assert invoice["number"] in shown and "49.00 USD" in shown and "payment failed" in shown
    assert f'href="https://pay.example/{invoice["id"]}"' in shown
    assert "Plan: Pro" in shown and "Its last payment failed." in shown


def test_an_unpaid_invoice_is_told_with_its_dates(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock) -> None:
    subscription = subscribe(stripe, fake, world, clock)
    fake.pays[fake.customer(world.sums.public_id)["id"]] = False
    fake.finalize(fake.end_period(subscription)["id"])
    deliver(fake, stripe, NOW)
    assert "an invoice is unpaid since 2026-01-01, so jobs pause" in page(world).lower()


def test_a_stranger_sees_nothing_of_it(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock) -> None:
    topup(stripe, world, clock, 50_000_000)
    subscribe(stripe, fake, world, clock)
    deliver(fake, stripe, clock())
    shown = page(world, world.charlie)
    assert "M-0001" not in shown and "not paid yet" not in shown


def test_programs_read_the_same(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock) -> None:
    subscription = subscribe(stripe, fake, world, clock)
    fake.pays[fake.customer(world.sums.public_id)["id"]] = False
    fake.finalize(fake.end_period(subscription)["id"])
    deliver(fake, stripe, NOW)
    api = world.api(world.alice)
    told = api.get("/api/v1/billing/").json()
    assert (told["payments"], told["credit_line_micros"], told["standing"]["stage"]) == (True, 10_000_000, "stopped")
    assert told["forecast"]["spent_micros"] == 0 and told["stop_micros"] is None
    newest, first = api.get("/api/v1/billing/invoices/").json()["results"]
    assert (newest["status"], newest["total_minor"], first["status"]) == ("open", 4900, "paid")
    assert [line["overage"] for line in newest["lines"]] == [False, True]
    assert world.api(world.charlie).get("/api/v1/billing/invoices/").json()["results"] == []


# --- limits ---------------------------------------------------------------------------------------------------------------------


def test_both_limits_are_kept_shown_and_switched_off_each_by_itself(world: World) -> None:
    client = world.client(world.alice)
    client.post("/billing/limits/", {"alert": "10.50", "stop": "20"})
    assert 'value="10.50"' in page(world) and 'value="20.00"' in page(world)
    client.post("/billing/limits/", {"alert": "", "stop": "20"})
    found = Account.objects.get(tenant=world.sums)
    assert (found.alert_micros, found.stop_micros) == (None, 20_000_000)


@pytest.mark.parametrize("typed", ["-1", "0", "x"])
def test_a_bad_limit_is_told_and_nothing_is_changed(world: World, typed: str) -> None:
    assert world.client(world.alice).post("/billing/limits/", {"alert": "5", "stop": typed}).status_code == 422
    assert Account.objects.get(tenant=world.sums).alert_micros is None
    with pytest.raises(Invalid, match="above 0"):
        limits.change(world.sums, world.alice, 0, None, NOW)
    with pytest.raises(Forbidden):
        limits.change(world.sums, world.bob, 5, None, NOW)


def spend(world: World, micros: int, now: Any = NOW, step: int = 1) -> None:
    ledger.post(world.sums, [line(step=step, quantity=micros, price_micros=1_000_000, at=now)], now)


def test_the_alert_mails_owners_and_administrators_once_a_month_and_stops_nothing(world: World) -> None:
    account(world.sums, 100_000_000)
    limits.change(world.sums, world.alice, 5_000_000, None, NOW)
    spend(world, 4_999_999)
    assert limits.tell(NOW) == 0
    spend(world, 1, step=2)
    assert [limits.tell(NOW), limits.tell(NOW)] == [1, 0]
    (sent,) = mail.outbox
    assert sent.to == ["alice@example.org"] and "5.00 USD" in sent.body
    assert limits.obstacle(world.sums, 10**9, NOW) == ""
    february = NOW + timedelta(days=31)
    assert limits.tell(february) == 0
    spend(world, 5_000_000, february, step=3)
    assert limits.tell(february) == 1
    limits.change(world.sums, world.alice, 6_000_000, None, february)
    spend(world, 1_000_000, february, step=4)
    assert limits.tell(february) == 1


def test_the_stop_refuses_new_jobs_and_pauses_running_ones_at_a_step(world: World, engine: FakeEngine) -> None:
    account(world.sums, 100_000_000)
    run = Run(world, engine, train={"steps": 1000})
    limits.change(world.sums, world.alice, None, run.hold.micros + STEP_MICROS - 1, NOW)
    run.step(1)
    run.store()
    assert run.hold.stop_code == "limit" and "stops at" in run.pauses()[0]
    with pytest.raises(gate.SpendingLimit, match="raise that on the billing page"):
        create_job(world.sums, world.alice, world.order(), NOW)
    limits.change(world.sums, world.alice, None, 90_000_000, NOW)
    create_job(world.sums, world.alice, world.order(), NOW)


def test_who_bought_and_who_limited_stands_in_the_audit_log(world: World, stripe: Stripe, fake: FakeStripe) -> None:
    client = world.client(world.alice)
    client.post("/billing/credit/", {"amount": "50"})
    client.post("/billing/plan/", {"plan": plan(fake).key})
    client.post("/billing/limits/", {"alert": "", "stop": "20"})
    found = {row.action: (row.actor, row.target_name, row.details) for row in world.sums.audit.filter(action__startswith="billing.")}
    assert found == {
        "billing.credit": (world.alice, "50.00 USD", {}),
        "billing.plan": (world.alice, "Pro", {}),
        "billing.limits": (world.alice, "", {"alert": "off", "stop": "20.00 USD"}),
    }


def test_the_next_month_is_free_of_the_last_ones_stop(world: World) -> None:
    account(world.sums, 100_000_000)
    limits.change(world.sums, world.alice, None, 5_000_000, NOW)
    spend(world, 5_000_000)
    assert limits.obstacle(world.sums, 1, NOW)
    assert limits.obstacle(world.sums, 1, NOW + timedelta(days=31)) == ""


# --- forecast -------------------------------------------------------------------------------------------------------------------


def test_the_months_end_is_what_was_spent_and_the_pace_of_the_last_days(world: World) -> None:
    account(world.sums, 1_000_000_000)
    for day in range(9):
        spend(world, 3_000_000, NOW + day * DAY, step=day)
    found = forecast.forecast(world.sums, NOW + 9 * DAY)  # the 10th, nothing used yet today
    assert (found.spent, found.a_day, found.days) == (27_000_000, 3_000_000, 7)
    assert found.month_end == 31 * 3_000_000


def test_a_first_day_has_no_pace_and_a_quiet_tenant_none_to_fear(world: World) -> None:
    assert forecast.forecast(world.sums, NOW).month_end == 0
    spend(world, 3_000_000)
    assert forecast.forecast(world.sums, NOW).month_end == 3_000_000


def test_the_pace_of_a_new_tenant_counts_from_its_first_day(world: World) -> None:
    spend(world, 4_000_000)
    found = forecast.forecast(world.sums, NOW + 2 * DAY)
    assert (found.a_day, found.days) == (2_000_000, 2)


def test_the_usage_page_tells_the_forecast(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portal.billing.views.timezone.now", lambda: NOW + 2 * DAY)
    spend(world, 4_000_000)
    assert "this month will have cost" in world.client(world.alice).get("/usage/").content.decode()
