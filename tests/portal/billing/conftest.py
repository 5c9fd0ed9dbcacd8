from __future__ import annotations

import os
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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Which Stripe was asked, in every run, quiet ones too."""
    asked = [one for one in terminalreporter.stats.get("passed", []) if "test_stripe_contract" in one.nodeid]
    if asked and os.environ.get("STRIPE_TEST_KEY"):
        terminalreporter.write_line(f"Stripe: {len(asked)} tests of the contract asked the sandbox of STRIPE_TEST_KEY.")
    elif asked:
        terminalreporter.write_line(
            f"Stripe: {len(asked)} tests of the contract asked the fake, since STRIPE_TEST_KEY is not set; no sandbox was tried."
        )
