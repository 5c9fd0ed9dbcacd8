"""What Stripe is told of usage: what is told, once, and what happens when Stripe is away, slow or of another opinion."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from portal.billing import ledger, outbox
from portal.billing.models import Account, Entry, MeterEvent
from portal.billing.stripe_client import Stripe
from tests.fake_stripe import FakeStripe
from tests.portal.billing.books import account, line
from tests.portal.billing.till import DAY, HOUR, Clock
from tests.portal.world import NOW, World

SAMPLED = outbox.METERS["sampled"]


def send(stripe: Stripe, now: datetime, **more: Any) -> int:
    return outbox.send(stripe, now, monotonic=lambda: 0.0, chance=lambda: 0.5, **more)


def use(world: World, clock: Clock, quantity: int = 1000, **changes: Any) -> None:
    """Something sampled now, under a key of its own."""
    number = Entry.objects.count() + 1
    ledger.post(world.sums, [line(step=number, quantity=quantity, at=clock(), **changes)], clock())


@pytest.fixture
def told(world: World, fake: FakeStripe) -> Callable[..., int]:
    def told(meter: str = SAMPLED) -> int:
        customer = fake.customer(world.sums.public_id)
        return fake.used(customer["id"], meter) if customer else 0

    return told


@pytest.fixture
def waiting(world: World, stripe: Stripe, clock: Clock) -> MeterEvent:
    """An event of 1000 sampled tokens whose hour is over."""
    account(world.sums, 100_000_000)
    use(world, clock)
    clock.on(HOUR)
    assert outbox.seal(clock()) == 1
    return MeterEvent.objects.get()


def test_an_hour_is_one_event_of_each_meter(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock, told: Any) -> None:
    account(world.sums, 100_000_000)
    for _ in range(3):
        use(world, clock, 1000)
        use(world, clock, 10, kind="trained")
    clock.on(HOUR)
    assert (outbox.seal(clock()), send(stripe, clock())) == (2, 2)
    assert (told(), told(outbox.METERS["trained"]), len(fake.usage)) == (3000, 30, 2)
    assert {event["identifier"] for event in fake.usage} == {
        f"{world.sums.public_id}.marlaas_{k}.2026010112" for k in ("sampled", "trained")
    }


def test_an_hour_that_is_not_over_is_not_sent(world: World, stripe: Stripe, clock: Clock) -> None:
    account(world.sums, 100_000_000)
    use(world, clock)
    assert (outbox.seal(clock()), send(stripe, clock())) == (0, 0)


def test_a_sealed_hour_grows_no_more_whatever_the_clock_says(world: World, waiting: MeterEvent, stripe: Stripe, clock: Clock) -> None:
    clock.on(-HOUR)
    use(world, clock, 7)
    assert dict(MeterEvent.objects.values_list("hour", "quantity")) == {NOW: 1000, NOW + HOUR: 7}
    assert set(Entry.objects.filter(kind="sampled").values_list("told_hour", flat=True)) == {NOW, NOW + HOUR}


def test_without_keys_nothing_is_written_for_stripe(world: World, clock: Clock) -> None:
    account(world.sums, 100_000_000)
    use(world, clock)
    assert not MeterEvent.objects.exists()
    assert Entry.objects.get(kind="sampled").told_hour is None


def test_what_is_free_and_what_is_taken_back_is_not_told(world: World, stripe: Stripe, clock: Clock) -> None:
    account(world.sums, 100_000_000)
    use(world, clock, 5000, price_micros=0, reason="the platform failed it")
    assert not MeterEvent.objects.exists()
    use(world, clock, 1000)
    ledger.reverse(Entry.objects.get(kind="sampled", price_micros__gt=0), "our error", "ops", clock())
    assert MeterEvent.objects.get().quantity == 1000


@pytest.mark.parametrize("quantity", [0, -5])
def test_nothing_and_less_than_nothing_is_refused(stripe: Stripe, fake: FakeStripe, quantity: int) -> None:
    before = len(fake.calls)
    with pytest.raises(ValueError, match="only what was used"):
        stripe.send_usage(meter=SAMPLED, customer="cus_1", quantity=quantity, at=NOW, identifier="x")
    assert len(fake.calls) == before


@pytest.mark.parametrize("fault", ["drop", "lost", "late", "500", "500 done", "429"])
def test_it_is_counted_once_whatever_goes_wrong(
    waiting: MeterEvent, stripe: Stripe, fake: FakeStripe, clock: Clock, told: Any, fault: str
) -> None:
    send(stripe, clock())  # makes the customer
    MeterEvent.objects.update(sent_at=None, tried_at=None, attempts=0)
    fake.usage.clear()
    fake.api = type(fake.api)(fake)
    fake.misbehave(fault)
    assert send(stripe, clock()) == 0
    clock.on(HOUR)
    assert send(stripe, clock()) == 1
    assert (told(), len(fake.usage)) == (1000, 1)


@pytest.mark.parametrize("fault", ["drop", "lost"])
def test_after_a_day_stripe_is_asked_before_it_is_told_again(
    waiting: MeterEvent, stripe: Stripe, fake: FakeStripe, clock: Clock, told: Any, fault: str
) -> None:
    outbox.customer_of(stripe, waiting.tenant, clock())
    fake.misbehave(fault)
    send(stripe, clock())
    clock.on(2 * DAY)
    assert send(stripe, clock()) == 1
    assert any(path.endswith("/event_summaries") for _, path in fake.calls)
    assert (told(), len(fake.usage)) == (1000, 1)


def test_what_stripe_counted_otherwise_is_left_to_a_person(
    waiting: MeterEvent, stripe: Stripe, fake: FakeStripe, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    customer = outbox.customer_of(stripe, waiting.tenant, clock())
    stripe.send_usage(meter=SAMPLED, customer=customer, quantity=400, at=waiting.hour, identifier="by somebody else")
    fake.misbehave("drop")
    send(stripe, clock())
    clock.on(2 * DAY)
    assert send(stripe, clock()) == 0
    assert "Stripe has 400" in MeterEvent.objects.get().error and "usage_not_taken" in caplog.text


def test_what_is_older_than_stripe_takes_is_told_to_the_operator(waiting: MeterEvent, stripe: Stripe, clock: Clock) -> None:
    clock.on(40 * DAY)
    assert send(stripe, clock()) == 0
    assert "put them on an invoice by hand" in MeterEvent.objects.get().error


def test_stripe_down_lets_jobs_go_on_and_the_outbox_grow(
    world: World, waiting: MeterEvent, stripe: Stripe, fake: FakeStripe, clock: Clock, told: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fake.down = True
    for _ in range(10):
        use(world, clock)
        outbox.seal(clock())
        assert send(stripe, clock()) == 0
        clock.on(HOUR)
    assert outbox.alarm(clock()) > 6 * HOUR and "usage_waits_for_stripe" in caplog.text
    assert Account.objects.get(tenant=world.sums).balance_micros == 100_000_000 - 11 * 400
    fake.down = False
    outbox.seal(clock())
    assert send(stripe, clock() + HOUR) == 11
    assert (told(), outbox.oldest(clock())) == (11_000, timedelta(0))


def test_a_stripe_that_is_away_is_not_asked_for_every_event(world: World, stripe: Stripe, fake: FakeStripe, clock: Clock) -> None:
    account(world.sums, 100_000_000)
    for _ in range(8):
        use(world, clock)
        clock.on(HOUR)
    outbox.seal(clock())
    fake.down = True
    before = len(fake.calls)
    send(stripe, clock())
    assert len(fake.calls) - before == outbox.FAILURES_IN_A_ROW


def test_each_pause_is_longer_spread_and_never_shorter_than_stripe_asks_for() -> None:
    pauses = [outbox._pause(attempts, 0.5, None) for attempts in range(12)]
    assert pauses == sorted(pauses) and pauses[0] == 4.0 and pauses[-1] == 3600.0
    assert (outbox._pause(0, 0.0, None), outbox._pause(0, 1.0, None), outbox._pause(0, 0.5, 30.0)) == (2.0, 6.0, 30.0)


def test_the_sender_stops_at_its_deadline(world: World, waiting: MeterEvent, stripe: Stripe, clock: Clock) -> None:
    ticks = iter([0.0, 61.0])
    assert outbox.send(stripe, clock(), seconds=60.0, monotonic=lambda: next(ticks)) == 0


def test_two_senders_do_not_send_the_same(waiting: MeterEvent, stripe: Stripe, fake: FakeStripe, clock: Clock) -> None:
    stale = MeterEvent.objects.select_related("tenant").get()
    assert outbox._claim(stale, clock())
    assert not outbox._claim(stale, clock())
    assert send(stripe, clock()) == 0


def test_only_what_no_credit_covers_is_overage_to_the_micro_unit(world: World, stripe: Stripe, clock: Clock, told: Any) -> None:
    account(world.sums, 1_000)
    Account.objects.update(credit_line_micros=10_000)
    for quantity in (2_000, 2_000, 1_000, 777):  # 800, 800, 400, 311 micro-units; the second crosses 0
        use(world, clock, quantity)
    parts = list(Entry.objects.filter(kind="sampled").order_by("id").values_list("overage_micros", flat=True))
    assert parts == [0, 600, 400, 311]
    clock.on(HOUR)
    outbox.seal(clock())
    send(stripe, clock())
    assert (told(outbox.OVERAGE), -Account.objects.get(tenant=world.sums).balance_micros) == (1_311, 1_311)


def test_without_a_subscription_nothing_is_overage(world: World, stripe: Stripe, clock: Clock) -> None:
    account(world.sums, 1_000)
    use(world, clock, 100_000)
    assert not MeterEvent.objects.filter(meter=outbox.OVERAGE).exists()
