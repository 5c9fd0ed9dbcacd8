"""Stripe's notices: twice, out of order, late, missing, forged. What they are about is always fetched anew."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from portal.billing import fresh, notices, subscriptions, topups
from portal.billing.models import Account, Entry, Invoice, Plan, StripeEvent, Subscription, TopUp
from portal.billing.stripe_client import Stripe
from portal.billing.stripe_records import Unreachable
from tests.fake_stripe import FakeStripe
from tests.portal.billing.books import account
from tests.portal.billing.till import DAY, HOUR, Clock, deliver, post, topup
from tests.portal.billing.till import subscribe as subscribed
from tests.portal.world import World


@pytest.fixture
def paid(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock) -> dict[str, Any]:
    """The notice that 50 of credit are paid, not given yet."""
    account(world.sums, 0)
    fake.complete(topup(stripe, world, clock, 50_000_000))
    return fake.take()[-1]


def balance(world: World) -> int:
    return Account.objects.get(tenant=world.sums).balance_micros


def test_a_notice_is_stored_answered_and_handled_once(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict) -> None:
    assert [post(fake, paid) for _ in range(3)] == [200] * 3
    assert StripeEvent.objects.count() == 1
    assert (notices.sweep(stripe, clock()), notices.sweep(stripe, clock())) == (1, 0)
    assert balance(world) == 50_000_000


def test_the_same_object_under_another_event_changes_nothing(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict
) -> None:
    deliver(fake, stripe, clock(), [paid, {**paid, "id": "evt_another"}])
    assert StripeEvent.objects.exclude(handled_at=None).count() == 2
    assert (balance(world), Entry.objects.filter(source_type="checkout").count()) == (50_000_000, 1)


def test_what_a_notice_says_of_its_object_is_not_believed(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict) -> None:
    session = fake.of("checkout.session")[0]
    session["payment_status"] = "unpaid"
    deliver(fake, stripe, clock(), [paid])
    assert balance(world) == 0


def _forgeries(fake: FakeStripe, paid: dict) -> dict[str, tuple[str, str]]:
    now = int(datetime.now(UTC).timestamp())
    body, signature = fake.sign(paid, at=now)
    return {
        "another secret": fake.sign(paid, secret="whsec_other", at=now),
        "no signature": (body, ""),
        "no sense in the signature": (body, "t=x,v1=y"),
        "another body": (body.replace("evt_", "evt_x"), signature),
        "signed an hour ago": fake.sign(paid, at=now - 3600),
        "signed ahead of time": fake.sign(paid, at=now + 3600),
        "of the live mode": fake.sign({**paid, "livemode": True}, at=now),
        "of another account": fake.sign({**paid, "account": "acct_other"}, at=now),
        "no event": fake.sign({"object": "charge", "livemode": False}, at=now),
        "no JSON object": fake.sign([1], at=now),  # type: ignore[arg-type]
        "no object in it": fake.sign({**paid, "data": None}, at=now),
    }


FORGERIES = (
    *("another secret", "no signature", "no sense in the signature", "another body", "signed an hour ago", "signed ahead of time"),
    *("of the live mode", "of another account", "no event", "no JSON object", "no object in it"),
)


@pytest.mark.parametrize("which", FORGERIES)
def test_what_is_not_stripes_or_not_for_us_is_refused_and_not_stored(stripe: Stripe, fake: FakeStripe, paid: dict, which: str) -> None:
    body, signature = _forgeries(fake, paid)[which]
    answer = Client().post("/stripe/webhook/", body, content_type="application/json", headers={"Stripe-Signature": signature})
    assert (answer.status_code, StripeEvent.objects.count()) == (400, 0)


def test_a_huge_notice_is_not_read_to_its_end(stripe: Stripe) -> None:
    answer = Client().post("/stripe/webhook/", b"x" * (1024 * 1024 + 1), content_type="application/json")
    assert answer.status_code == 413


def test_without_keys_there_is_no_door(world: World) -> None:
    assert Client().post("/stripe/webhook/", "{}", content_type="application/json").status_code == 404


def test_the_door_takes_no_other_method(stripe: Stripe) -> None:
    assert Client().get("/stripe/webhook/").status_code == 405


@pytest.mark.parametrize("seed", range(4))
def test_in_any_order_and_any_number_the_end_is_what_stands_at_stripe(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, seed: int
) -> None:
    account(world.sums, 0)
    subscription = subscribed(stripe, fake, world, clock)
    fake.complete(topup(stripe, world, clock, 5_000_000))
    fake.cancel(subscription)
    events = fake.take() * 2
    random.Random(seed).shuffle(events)
    deliver(fake, stripe, clock(), [{**event, "id": f"{event['id']}_{number}"} for number, event in enumerate(events)])
    assert Subscription.objects.get().status == "canceled"
    assert (balance(world), Account.objects.get(tenant=world.sums).credit_line_micros) == (5_000_000 + 20_000_000, 0)
    assert Invoice.objects.get().status == "paid"


def test_a_state_that_was_read_earlier_never_goes_over_one_that_was_read_later(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock
) -> None:
    """While the first handler holds what it fetched, a second one fetches and writes the newer state."""
    subscription = subscribed(stripe, fake, world, clock)
    deliver(fake, stripe, clock())
    fetched = []

    def fetch() -> Any:
        found = stripe.subscription(subscription)
        if not fetched:
            fake.cancel(subscription)
            subscriptions.mirror(stripe, subscription, clock())
        fetched.append(found.status)
        return found

    fresh.write(subscription, fetch, lambda found: subscriptions._apply(found, clock()), clock())
    assert fetched == ["active", "canceled"]
    assert Subscription.objects.get().status == "canceled"


def test_others_that_are_always_quicker_end_in_another_try(world: World, stripe: Stripe, clock: Clock) -> None:
    def fetch() -> None:
        fresh.write("thing", lambda: None, lambda _: None, clock())

    with pytest.raises(Unreachable):
        fresh.write("thing", fetch, lambda _: None, clock())


@pytest.mark.parametrize("fault", ["drop", "500", "429", "lost"])
def test_a_handler_that_gets_no_answer_tries_again_later(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict, fault: str
) -> None:
    post(fake, paid)
    fake.misbehave(fault)
    assert notices.sweep(stripe, clock()) == 0
    assert (balance(world), StripeEvent.objects.get().handled_at) == (0, None)
    assert notices.sweep(stripe, clock.on(HOUR)) == 1
    assert balance(world) == 50_000_000


def test_an_object_that_is_gone_is_told_to_the_operator(
    stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict, caplog: pytest.LogCaptureFixture
) -> None:
    post(fake, paid)
    fake.objects.clear()
    notices.sweep(stripe, clock())
    assert "No such object" in StripeEvent.objects.get().error and "notice_not_handled" in caplog.text


def test_notices_that_were_missed_for_days_are_found_told_and_handled(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict, caplog: pytest.LogCaptureFixture
) -> None:
    notices.backfill(stripe, clock())
    notices.sweep(stripe, clock())
    fake.complete(topup(stripe, world, clock, 7_000_000))
    fake.take()  # nobody is told
    assert notices.backfill(stripe, clock.on(9 * DAY)) == 1
    notices.sweep(stripe, clock())
    assert balance(world) == 57_000_000
    assert "notices_were_missed" in caplog.text
    assert StripeEvent.objects.filter(found="backfill").count() == 2
    assert notices.backfill(stripe, clock.on(DAY)) == 0


def test_kinds_that_mean_nothing_to_us_are_answered_and_forgotten(stripe: Stripe, fake: FakeStripe) -> None:
    event = fake.happen("customer.created", fake.make("customer", "cus"))
    assert (post(fake, event), StripeEvent.objects.count()) == (200, 0)


# --- credit ---------------------------------------------------------------------------------------------------------------------


def test_coming_back_from_checkout_is_not_paying(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock) -> None:
    account(world.sums, 0)
    session = topup(stripe, world, clock, 5_000_000)
    fake.complete(session, pays=False)  # by a bank that needs days
    deliver(fake, stripe, clock())
    assert (balance(world), TopUp.objects.get().state) == (0, "open")
    fake.settle(session, pays=True)
    deliver(fake, stripe, clock.on(3 * DAY))
    assert (balance(world), TopUp.objects.get().state) == (5_000_000, "paid")


def test_a_payment_that_does_not_settle_and_a_checkout_that_is_left_bring_nothing(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock
) -> None:
    account(world.sums, 0)
    fails, left = topup(stripe, world, clock, 5_000_000), topup(stripe, world, clock, 6_000_000)
    fake.complete(fails, pays=False)
    fake.settle(fails, pays=False)
    fake.expire(left)
    deliver(fake, stripe, clock())
    assert balance(world) == 0
    assert {row.micros: row.state for row in TopUp.objects.all()} == {5_000_000: "failed", 6_000_000: "expired"}


def test_a_failed_notice_that_comes_after_the_payment_takes_nothing_back(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict
) -> None:
    deliver(fake, stripe, clock(), [paid, {**paid, "id": "evt_late", "type": "checkout.session.async_payment_failed"}])
    assert (balance(world), TopUp.objects.get().state) == (50_000_000, "paid")


def test_a_session_with_another_amount_or_customer_brings_nothing(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict, caplog: pytest.LogCaptureFixture
) -> None:
    session = fake.of("checkout.session")[0]
    session["amount_total"] -= 1
    deliver(fake, stripe, clock(), [paid])
    session |= {"amount_total": 5000, "customer": "cus_other"}
    deliver(fake, stripe, clock(), [{**paid, "id": "evt_2"}])
    assert balance(world) == 0
    assert "paid_less_than_asked" in caplog.text and "session_of_somebody_else" in caplog.text


@pytest.mark.parametrize(
    ("micros", "currency", "words"),
    [
        (999_999, "USD", "decimal places"),
        (10_000, "USD", "must lie between"),
        (5_500_000, "JPY", "decimal places"),
        (10**12, "USD", "between"),
    ],
)
def test_what_cannot_be_paid_exactly_is_refused_before_stripe_is_asked(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, settings: Any, micros: int, currency: str, words: str
) -> None:
    settings.CURRENCY = currency
    before = len(fake.calls)
    with pytest.raises(topups.Invalid, match=words):
        topups.buy(stripe, world.sums, world.alice, micros, "https://x/", clock())
    assert len(fake.calls) == before and not TopUp.objects.exists()


def test_a_currency_without_places_is_asked_for_in_whole_units(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, settings: Any
) -> None:
    settings.CURRENCY = "JPY"
    account(world.sums, 0)
    session = topup(stripe, world, clock, 5_000_000_000)
    assert (fake.get(session)["amount_total"], fake.get(session)["currency"]) == (5000, "jpy")
    fake.complete(session)
    deliver(fake, stripe, clock())
    assert balance(world) == 5_000_000_000


def test_members_and_viewers_buy_nothing(world: World, stripe: Stripe, clock: Clock) -> None:
    for user in (world.bob, world.vera):
        with pytest.raises(Exception, match="admin"):
            topups.buy(stripe, world.sums, user, 5_000_000, "https://x/", clock())


@pytest.mark.parametrize("fault", ["drop", "lost", "500", "429"])
def test_a_checkout_that_cannot_be_opened_says_that_nothing_was_charged(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, fault: str
) -> None:
    topup(stripe, world, clock, 5_000_000)  # the customer is there
    fake.misbehave(fault)
    with pytest.raises(topups.NotNow, match="nothing was charged"):
        topups.buy(stripe, world.sums, world.alice, 5_000_000, "https://x/", clock())
    assert TopUp.objects.order_by("id").last().state == "failed"


# --- money back -----------------------------------------------------------------------------------------------------------------


def test_refunds_in_parts_take_their_credit_as_rows_of_their_own(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict
) -> None:
    deliver(fake, stripe, clock(), [paid])
    payment = TopUp.objects.get().payment_id
    for amount in (1000, 500):
        fake.refund(payment, amount)
    deliver(fake, stripe, clock())
    rows = list(Entry.objects.filter(source_type="refund").order_by("id").values_list("kind", "amount_micros"))
    assert rows == [("debit", -10_000_000), ("debit", -5_000_000)]
    assert balance(world) == 35_000_000


def test_a_refund_that_fails_gives_the_credit_back(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict) -> None:
    deliver(fake, stripe, clock(), [paid])
    refund = fake.refund(TopUp.objects.get().payment_id, 1000, "pending")
    deliver(fake, stripe, clock())
    assert balance(world) == 40_000_000
    fake.fail_refund(refund["id"])
    deliver(fake, stripe, clock())
    assert balance(world) == 50_000_000


@pytest.mark.parametrize(("won", "left"), [(True, 50_000_000), (False, 0)])
def test_a_dispute_takes_the_credit_and_gives_it_back_when_it_is_won(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict, won: bool, left: int
) -> None:
    deliver(fake, stripe, clock(), [paid])
    dispute = fake.dispute(TopUp.objects.get().payment_id, 5000)
    deliver(fake, stripe, clock())
    assert balance(world) == 0
    fake.close_dispute(dispute["id"], won=won)
    deliver(fake, stripe, clock())
    assert balance(world) == left


def test_an_inquiry_of_the_bank_moves_no_money(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, paid: dict) -> None:
    deliver(fake, stripe, clock(), [paid])
    fake.dispute(TopUp.objects.get().payment_id, 5000)["status"] = "warning_needs_response"
    deliver(fake, stripe, clock())
    assert balance(world) == 50_000_000


def test_the_refund_of_a_plans_fee_takes_at_most_the_credit_that_it_brought(
    world: World, stripe: Stripe, fake: FakeStripe, clock: Clock
) -> None:
    account(world.sums, 0)
    subscribed(stripe, fake, world, clock, included=3_000_000)
    deliver(fake, stripe, clock())
    fake.refund(Invoice.objects.get().payment_id, 4900)
    deliver(fake, stripe, clock())
    assert balance(world) == 0


def test_money_back_for_a_payment_that_is_not_ours_is_told(
    stripe: Stripe, fake: FakeStripe, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    fake.refund("pi_unknown", 100)
    deliver(fake, stripe, clock())
    assert "money_back_of_unknown_payment" in caplog.text and not Entry.objects.exists()


def test_the_plans_of_a_subscription_come_and_go_with_it(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock) -> None:
    account(world.sums, 0)
    subscription = subscribed(stripe, fake, world, clock)
    deliver(fake, stripe, clock())
    found = Account.objects.select_related("plan").get(tenant=world.sums)
    assert (found.plan.key, found.credit_line_micros, found.balance_micros) == ("pro", 10_000_000, 20_000_000)
    fake.cancel(subscription)
    deliver(fake, stripe, clock())
    found = Account.objects.select_related("plan").get(tenant=world.sums)
    assert (found.plan.key, found.credit_line_micros, found.balance_micros) == ("standard", 0, 20_000_000)


def test_nobody_subscribes_twice_or_to_what_is_not_for_sale(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock) -> None:
    subscribed(stripe, fake, world, clock)
    deliver(fake, stripe, clock())
    with pytest.raises(subscriptions.Conflict, match="already"):
        subscriptions.choose(stripe, world.sums, world.alice, "pro", "https://x/", clock())
    Plan.objects.create(key="secret", name="Secret")
    with pytest.raises(subscriptions.Invalid, match="not for sale"):
        subscriptions.choose(stripe, world.other, world.charlie, "secret", "https://x/", clock())


def test_the_customers_own_portal_opens(world: World, stripe: Stripe, clock: Clock) -> None:
    assert subscriptions.portal(stripe, world.sums, world.alice, "https://x/", clock()).startswith("https://billing.stripe.com/")


def test_a_tenant_is_one_customer_however_often_it_is_asked_for(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock) -> None:
    fake.misbehave("lost")
    for _ in range(3):
        try:
            topup(stripe, world, clock, 5_000_000)
        except topups.NotNow:
            continue
    assert len(fake.of("customer")) == 1
    assert json.loads(json.dumps(fake.of("customer")[0]["metadata"])) == {"tenant": world.sums.public_id}
