"""What we count on Stripe for. Against the fake; with STRIPE_TEST_KEY set, against that sandbox of the real Stripe, so that the fake stays
honest. No test is left out either way, and the run says at its end which Stripe it was. A real sum of usage is there only after a while, so
it is not asked for here.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from portal.billing import catalogue, outbox
from portal.billing.stripe_client import Stripe
from portal.billing.stripe_records import Refused
from tests.fake_stripe import FakeStripe
from tests.portal.billing.till import Clock

KEY = os.environ.get("STRIPE_TEST_KEY", "")


@pytest.fixture
def either(fake: FakeStripe, clock: Clock, settings: Any) -> Stripe:
    assert KEY.startswith(("sk_test_", "rk_test_")) or not KEY, "STRIPE_TEST_KEY must be a key of the test mode"
    clock.now = datetime.now(UTC)
    connected = Stripe(key=KEY or fake.key, webhook_secret=fake.secret, base="" if KEY else fake.url, retries=2 if KEY else 0)
    catalogue.set_up(connected)
    return connected


@pytest.fixture
def customer(either: Stripe, clock: Clock) -> str:
    return either.create_customer(tenant=f"ten_{uuid4().hex[:20]}", name="Sums & Söhne", email="alice@example.org", now=clock())


def test_the_catalogue_is_made_once(either: Stripe) -> None:
    assert catalogue.set_up(either) == []
    assert {*outbox.METERS.values(), outbox.OVERAGE} <= either.catalogue().meters.keys()
    assert either.catalogue().overage_price.startswith("price_")


def test_a_customer_that_is_asked_for_twice_within_an_hour_is_one(either: Stripe, clock: Clock) -> None:
    asked = {"tenant": f"ten_{uuid4().hex[:20]}", "name": "Sums", "email": "alice@example.org", "now": clock()}
    assert either.create_customer(**asked) == either.create_customer(**asked)


def test_usage_under_one_identifier_may_be_told_twice(either: Stripe, customer: str, clock: Clock) -> None:
    at = outbox.hour_of(clock() - timedelta(hours=1))
    for _ in range(2):
        either.send_usage(meter=outbox.METERS["sampled"], customer=customer, quantity=1234, at=at, identifier=f"{customer}.contract")


@pytest.mark.parametrize("change", [{"at": timedelta(days=-36)}, {"at": timedelta(hours=1)}, {"meter": "marlaas_no_such_meter"}])
def test_usage_that_is_too_old_ahead_of_time_or_of_no_meter_is_refused(
    either: Stripe, customer: str, clock: Clock, change: dict[str, Any]
) -> None:
    moment = clock() + change.pop("at", timedelta(0))
    told = {"meter": outbox.METERS["sampled"], "customer": customer, "quantity": 1, "identifier": uuid4().hex, **change}
    with pytest.raises(Refused):
        either.send_usage(at=moment, **told)


def test_a_checkout_for_credit_is_open_unpaid_and_says_what_it_is_for(either: Stripe, customer: str, clock: Clock) -> None:
    reference = f"top_{uuid4().hex[:20]}"
    sold = {"customer": customer, "reference": reference, "amount_minor": 5000, "currency": "USD", "words": "Credit of 50.00 USD"}
    opened = either.sell_credit(back="https://site.example/billing/", now=clock(), **sold)
    found = either.session(opened.id)
    assert opened.url.startswith("https://checkout.stripe.com/")
    assert (found.reference, found.mode, found.status, found.paid) == (reference, "payment", "open", False)
    assert (found.amount_minor, found.currency, found.customer) == (5000, "USD", customer)


def test_late_usage_waits_once_for_the_customers_next_invoice(either: Stripe, customer: str, clock: Clock) -> None:
    began = outbox.hour_of(clock() - timedelta(days=40))
    asked: dict[str, Any] = {"customer": customer, "invoice": f"in_{uuid4().hex[:20]}", "micros": 1_234_567, "currency": "USD"}
    asked |= {
        "unit_minor": catalogue.micro_unit_minor("USD"),
        "words": "Usage beyond credit",
        "period": (began, began + timedelta(days=30)),
    }
    first = either.add_late(**asked, now=clock())
    assert first.startswith("ii_") and either.add_late(**asked, now=clock()) == first
    assert either.add_late(**{**asked, "invoice": "in_another"}, now=clock()) != first


def test_what_is_not_there_is_refused_by_name(either: Stripe) -> None:
    with pytest.raises(Refused) as refusal:
        either.subscription("sub_nobody")
    assert refusal.value.code == "resource_missing"


def test_a_new_customer_has_no_subscriptions_and_recent_events_can_be_listed(either: Stripe, customer: str, clock: Clock) -> None:
    assert either.subscriptions(customer) == []
    assert "customer.created" in {notice.kind for notice in either.notices(clock() - timedelta(minutes=5))}


def test_a_key_that_is_wrong_is_told_with_its_setting(fake: FakeStripe) -> None:
    wrong = Stripe(key="sk_test_wrong", webhook_secret=fake.secret, base="" if KEY else fake.url, retries=0)
    with pytest.raises(Refused, match="MARLAAS_STRIPE_KEY"):
        wrong.subscription("sub_nobody")
