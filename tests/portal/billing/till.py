"""Help for the tests with Stripe: a clock that is told the time, its catalogue, and notices as they come in."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.test import Client, TestCase

from portal.billing import catalogue, notices, setup, subscriptions, topups
from portal.billing.models import Plan, TopUp
from portal.billing.stripe_client import Stripe
from tests.fake_stripe import FakeStripe
from tests.portal.world import NOW, World

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Clock:
    """Says ``now`` until it is moved."""

    def __init__(self, now: datetime = NOW):
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def on(self, by: timedelta) -> datetime:
        self.now += by
        return self.now


def set_up(stripe: Stripe) -> list[str]:
    return catalogue.set_up(stripe)


def post(fake: FakeStripe, event: dict[str, Any], **sign: Any) -> int:
    """The status that a notice is answered with."""
    body, signature = fake.sign(event, **{"at": int(time.time()), **sign})  # the door's clock is the machine's
    return Client().post("/stripe/webhook/", body, content_type="application/json", headers={"Stripe-Signature": signature}).status_code


def deliver(fake: FakeStripe, stripe: Stripe, now: datetime, events: Iterable[dict[str, Any]] | None = None) -> None:
    """Notices of all that happened since the last time, in order, and their handling."""
    for event in fake.take() if events is None else events:
        assert post(fake, event) == 200, event["type"]
    with TestCase.captureOnCommitCallbacks(execute=True):
        notices.sweep(stripe, now, monotonic=lambda: 0.0)


def topup(stripe: Stripe, world: World, clock: Clock, micros: int) -> str:
    """Alice is at Checkout; the session's id."""
    topups.buy(stripe, world.sums, world.alice, micros, "https://site.example/billing/", clock())
    return str(TopUp.objects.order_by("-id").values_list("session_id", flat=True)[0])


def plan(fake: FakeStripe, key: str = "pro", *, fee_minor: int = 4900, included: int = 20_000_000, overage: int = 10_000_000) -> Plan:
    """A plan that is for sale, with its price at Stripe."""
    wanted = {"currency": "usd", "unit_amount": str(fee_minor), "recurring": {"interval": "month"}, "product_data": {"name": key.title()}}
    price = fake.api.create_price(wanted)["id"]
    limits = {**setup.DEFAULT_LIMITS, "name": key.title(), "stripe_price": price, "included_micros": included, "overage_micros": overage}
    return Plan.objects.create(key=key, **limits)


def subscribe(stripe: Stripe, fake: FakeStripe, world: World, clock: Clock, **terms: Any) -> str:
    """Alice buys a plan and pays its first fee; the subscription's id. Nobody was told yet."""
    url = subscriptions.choose(stripe, world.sums, world.alice, plan(fake, **terms).key, "https://site.example/billing/", clock())
    session = url.rsplit("/", 1)[1]
    fake.complete(session)
    return str(fake.get(session)["subscription"])
