"""A process that dies at any line between a step, the ledger, the outbox, the sending and the mark, with a Stripe that drops, doubles and
fails: what the engine did is what the ledger says and what Stripe has, for each tenant, to the token.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest
from django.db.models import Sum

from portal.billing import charging, gate, holds, ledger, meter, outbox, stripe_client, stripe_customers
from portal.billing.models import Entry, MeterEvent
from portal.billing.stripe_client import Stripe
from portal.jobs import ingest
from tenants.models import Tenant
from tests.fake_stripe import FakeStripe
from tests.portal.billing.books import Run, account
from tests.portal.billing.dying import Dies, LineKiller
from tests.portal.billing.test_crashes import run_of
from tests.portal.billing.till import DAY, HOUR, Clock
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import World

MODULES = (ingest, charging, meter, ledger, holds, gate, outbox, stripe_client, stripe_customers)
STEPS, TENANTS = 200, 5
KINDS = ("prefill", "sampled", "trained", "judge")


class Operation:
    """The ingest and the sender, as a supervisor keeps them up, against a clock that a test moves."""

    def __init__(self, stripe: Stripe, clock: Clock, chance: random.Random, killer: LineKiller):
        self.stripe, self.clock, self.chance, self.killer = stripe, clock, chance, killer

    def store(self, run: Run) -> None:
        while True:
            try:
                with self.killer:
                    return run.store(self.clock())
            except Dies:
                continue

    def beat(self) -> None:
        """One beat of the sender; it may die."""
        try:
            with self.killer:
                outbox.seal(self.clock())
                outbox.send(self.stripe, self.clock(), monotonic=lambda: 0.0, chance=self.chance.random)
        except Dies:
            return

    def drain(self) -> None:
        """Beats until nothing is left, with enough time between them for every pause."""
        for _ in range(200):
            self.beat()
            if not MeterEvent.objects.filter(sent_at=None).exists():
                return
            self.clock.on(HOUR)
        raise AssertionError(list(MeterEvent.objects.filter(sent_at=None).values_list("meter", "attempts", "error")[:5]))


def told(fake: FakeStripe, tenant: Tenant) -> Counter[str]:
    customer = fake.customer(tenant.public_id)
    return +Counter({kind: fake.used(customer["id"], outbox.METERS[kind]) for kind in KINDS}) if customer else Counter()


@pytest.mark.timeout(400)
def test_whatever_dies_and_however_stripe_answers_engine_ledger_and_stripe_say_the_same(
    world: World, engine: FakeEngine, fake: FakeStripe, stripe: Stripe, clock: Clock
) -> None:
    chance = random.Random(11)
    runs = [run_of(world, engine, number) for number in range(TENANTS)]
    for run in runs:
        account(run.job.tenant, 1_000_000_000)
    fake.fault = lambda: chance.choice(("drop", "lost", "late", "500", "500 done", "429")) if chance.random() < 0.15 else None
    killer = LineKiller(chance, MODULES, often=0.001)
    operation = Operation(stripe, clock, chance, killer)
    truth, versions = [Counter() for _ in runs], [0] * TENANTS
    for step in range(STEPS):
        number = chance.randrange(TENANTS)
        versions[number] += 1
        tokens = {kind: chance.randrange(1, 5000) for kind in KINDS}
        runs[number].step(versions[number], tokens=tokens, rollout={"cached_tokens": 0})
        truth[number].update(tokens)
        operation.store(runs[number])
        fake.down = 90 <= step < 110  # and the clock goes on for more than a day meanwhile
        clock.on(timedelta(hours=2) if fake.down else timedelta(minutes=chance.randrange(1, 9)))
        operation.beat()
    clock.on(HOUR)
    operation.drain()
    assert len(killer.deaths) >= 40 and {name for name, _ in killer.deaths} >= {m.__name__ for m in (ledger, outbox, stripe_client)}
    for run, wanted in zip(runs, truth, strict=True):
        tenant = run.job.tenant
        entries = Entry.objects.filter(tenant=tenant, source=run.job.public_id)
        assert dict(entries.order_by().values_list("kind").annotate(Sum("quantity"))) == wanted
        assert told(fake, tenant) == wanted
        assert ledger.audit(tenant).sound
        assert MeterEvent.objects.filter(tenant=tenant, attempts__gt=1).exists()
    assert clock() - DAY > runs[0].job.submitted_at
