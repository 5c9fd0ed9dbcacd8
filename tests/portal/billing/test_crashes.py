"""A process that dies anywhere between a step and its bill: what the engine did is what the ledger says, to the token."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from django.db.models import Sum

from portal.billing import gate, holds, ledger
from portal.billing.models import Entry
from portal.jobs import ingest, lifecycle
from portal.jobs.models import EngineCursor
from tenants.actions import create_tenant
from tests.portal.billing.books import Run
from tests.portal.billing.dying import Dies, Killer
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import World

PLACES = (
    *((ledger, "_known"), (ledger, "_add"), (ledger, "_roll_up"), (holds, "pay"), (holds, "raise_to"), (holds, "release")),
    *((lifecycle, "write"), (gate, "after_step"), (ingest.charging, "charge")),
)
STEPS, TENANTS = 200, 5


def test_whatever_dies_in_200_steps_of_5_tenants_the_ledger_is_what_the_engine_did(
    world: World, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)
    runs = [run_of(world, engine, number) for number in range(TENANTS)]
    killer, truth = Killer(monkeypatch, chance, PLACES), [Counter() for _ in runs]
    versions = [0] * TENANTS
    for _ in range(STEPS):
        number = chance.randrange(TENANTS)
        versions[number] += 1
        tokens = {kind: chance.randrange(1, 5000) for kind in ("prefill", "sampled", "trained", "judge")}
        runs[number].step(versions[number], tokens=tokens, rollout={"cached_tokens": 0})
        truth[number].update(tokens)
        if chance.random() < 0.5:
            _stored_at_last(runs[number], chance)
    for run in runs:
        run.tell("ended", state="succeeded", reason="", attribution="user", version=run.job.version)
    _stored_at_last(runs[0], chance)
    assert len(killer.deaths) >= 12, killer.deaths
    monkeypatch.undo()
    for run, wanted in zip(runs, truth, strict=True):
        entries = Entry.objects.filter(tenant=run.job.tenant, source=run.job.public_id)
        assert dict(entries.order_by().values_list("kind").annotate(Sum("quantity"))) == wanted
        assert ledger.audit(run.job.tenant).sound
        assert run.hold.closed_at is not None and run.account.held_micros == 0


def run_of(world: World, engine: FakeEngine, number: int) -> Run:
    """A job of a tenant of its own."""
    if number == 0:
        return Run(world, engine, train={"steps": 1000})
    owner = type(world.alice).objects.create_user(f"owner{number}@example.org", "x")
    create_tenant(owner, f"Tenant {number}")
    return Run(world, engine, user=owner, train={"steps": 1000})


def _stored_at_last(run: Run, chance: random.Random) -> None:
    """As a supervisor does: begin again until it worked; now and then from an older cursor, as after a restored backup."""
    if chance.random() < 0.2:
        reached = EngineCursor.objects.first()
        EngineCursor.objects.update(offset=chance.randrange(reached.offset + 1) if reached else 0)
    while True:
        try:
            return run.store()
        except Dies:
            continue
