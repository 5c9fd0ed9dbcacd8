from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from portal.billing import stripe_client
from portal.billing.stripe_client import Stripe
from tests.fake_stripe import FakeStripe
from tests.portal.billing.till import Clock, set_up


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fake(clock: Clock) -> Iterator[FakeStripe]:
    server = FakeStripe(clock)
    yield server
    server.close()


@pytest.fixture
def stripe(db: None, fake: FakeStripe, settings: Any) -> Stripe:
    """The portal has keys, and Stripe has meters and the overage's price."""
    settings.STRIPE_KEY, settings.STRIPE_WEBHOOK_SECRET, settings.STRIPE_API_BASE = fake.key, fake.secret, fake.url
    connected = stripe_client.connect()
    assert connected is not None
    set_up(connected)
    return connected
