"""A process that is killed (``kill -9``) at any line between a step, the ledger, the outbox, the sending and the mark, with a Stripe that
drops, doubles and fails: what the engine did is what the ledger says and what Stripe has, for each tenant, to the token.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.db import connection
from django.db.models import Sum

from portal.billing import ledger, outbox, stripe_client
from portal.billing.models import Entry, MeterEvent
from tenants.actions import create_tenant
from tests.fake_stripe import FakeStripe
from tests.fake_stripe.process import WORLD
from tests.portal.billing.books import Run, account
from tests.portal.billing.till import DAY, HOUR, set_up
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World
from tests.support.shared_numbers import SharedNumbers

SEED = 11
STEPS, TENANTS = 200, 5
KINDS = ("prefill", "sampled", "trained", "judge")
ROOT = Path(__file__).resolve().parents[3]


class Engine:
    """What the engine does, all of it beforehand. ``truth``: each job's tokens by kind; ``steps``: clock and journal at each."""

    def __init__(self, world: World, fake: FakeEngine, chance: random.Random):
        self.runs = [_run_of(world, fake, number) for number in range(TENANTS)]
        self.truth: list[Counter[str]] = [Counter() for _ in self.runs]
        self.accepted = len(fake.journal)
        versions: Counter[int] = Counter()
        self.steps: list[dict[str, int]] = []
        for number in range(STEPS):
            whose = chance.randrange(TENANTS)
            versions[whose] += 1
            tokens = {kind: chance.randrange(1, 5000) for kind in KINDS}
            self.truth[whose].update(tokens)
            self.runs[whose].step(versions[whose], tokens=tokens, rollout={"cached_tokens": 0})
            self.steps.append({**_around(number, chance), "journal": len(fake.journal)})
        for whose, run in enumerate(self.runs):
            run.tell("ended", state="succeeded", reason="", attribution="user", version=versions[whose])
        self.steps.append({**_around(STEPS, chance), "journal": len(fake.journal)})


def _around(step: int, chance: random.Random) -> dict[str, int]:
    """Time and Stripe at a step. Before it is away for more than a day it answers little of what it does: then identifiers expire."""
    if 90 <= step < 110:
        return {"seconds": 7200, "down": 1, "faults_per_mille": 0}
    return {"seconds": 60 * chance.randrange(1, 9), "down": 0, "faults_per_mille": 800 if 75 <= step < 90 else 150}


def _run_of(world: World, fake: FakeEngine, number: int) -> Run:
    """A job of a tenant of its own, with credit for all of it."""
    user = world.alice
    if number:
        user = type(world.alice).objects.create_user(f"owner{number}@example.org", "x")
        create_tenant(user, f"Tenant {number}")
    account(user.tenants.get(), 1_000_000_000)
    return Run(world, fake, user=user, train={"steps": 1000})


@contextmanager
def stripe_apart(numbers: Path) -> Iterator[str]:
    """The address of a fake Stripe in a process of its own."""
    command = [sys.executable, "-m", "tests.fake_stripe.process", str(numbers), str(SEED)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(30)


def _all_lives(folder: Path, engine: Engine, fake: FakeEngine, stripe: tuple[str, str, str]) -> dict[str, Any]:
    """What ``lives`` reports; fails with what its processes said."""
    journal, plan, report = folder / "journal", folder / "plan", folder / "report"
    journal.write_text("".join(json.dumps(event) + "\n" for event in fake.journal))
    wanted = {"seed": SEED, "engine": fake.engine, "accepted": engine.accepted, "steps": engine.steps, "stripe": stripe}
    paths = {"journal": str(journal), "world": str(folder / "numbers"), "report": str(report)}
    plan.write_text(json.dumps({**wanted, **paths, "database": _database()}))
    command = [sys.executable, "-m", "tests.portal.billing.lives", str(plan)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, f"seed {SEED}: {done.stderr[-4000:]}"
    return json.loads(report.read_text())


def _database() -> dict[str, Any]:
    """This test's, for another process; without a pool, whose threads no fork would have."""
    names = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")
    found = connection.settings_dict
    options = {name: value for name, value in found["OPTIONS"].items() if name != "pool"}
    return {**{name: str(found[name]) for name in names}, "OPTIONS": options}


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(600)
def test_whatever_is_killed_and_however_stripe_answers_engine_ledger_and_stripe_say_the_same(
    world: World, engine: FakeEngine, settings: Any, tmp_path: Path
) -> None:
    numbers = SharedNumbers(tmp_path / "numbers", WORLD)
    numbers["now"] = int(NOW.timestamp())
    with stripe_apart(tmp_path / "numbers") as url:
        keys = settings.STRIPE_KEY, settings.STRIPE_WEBHOOK_SECRET, settings.STRIPE_API_BASE = FakeStripe.key, FakeStripe.secret, url
        set_up(stripe_client.connect())
        did = Engine(world, engine, random.Random(SEED))
        lived = _all_lives(tmp_path, did, engine, keys)
        told = httpx.get(f"{url}/told").json()["told"]
    words = f"seed {SEED}, {lived['killed']} killed"
    for run, wanted in zip(did.runs, did.truth, strict=True):
        tenant = run.job.tenant
        entries = Entry.objects.filter(tenant=tenant, source=run.job.public_id)
        assert dict(entries.order_by().values_list("kind").annotate(Sum("quantity"))) == wanted, words
        assert {kind: told[tenant.public_id][outbox.METERS[kind]] for kind in KINDS} == wanted, words
        assert ledger.audit(tenant).sound, words
        assert run.hold.closed_at is not None and run.account.held_micros == 0, words
        assert MeterEvent.objects.filter(tenant=tenant, attempts__gt=1).exists()
    assert numbers["now"] > (NOW + DAY + HOUR).timestamp()
    assert lived["killed"] >= 200 and len(lived["died_at"]) >= 0.8 * lived["ran"], lived["spared"]
