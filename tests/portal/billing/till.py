"""Help for the tests with Stripe: a clock that is told the time, its catalogue, and notices as they come in."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.test import Client

from portal.billing import catalogue, notices
from portal.billing.stripe_client import Stripe
from tests.fake_stripe import FakeStripe
from tests.portal.world import NOW

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
    notices.sweep(stripe, now)
