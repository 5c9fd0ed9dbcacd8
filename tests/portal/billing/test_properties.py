"""Whatever happens, in whatever order and however often: the lines add up, and no balance is wrong by one micro-unit."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portal.billing import holds, ledger, usage
from portal.billing.models import Account, Entry, Hold, Kind, Price
from portal.billing.prices import PriceBook
from portal.jobs.models import EngineCursor, Job
from tenants.actions import create_tenant
from tenants.models import Tenant
from tests.portal.billing.books import Run, account, line
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World

RULES = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_numbers = count()
PRICES = st.sampled_from([0, 1, 3, 333_333, 400_000, 499_999, 500_000, 999_999, 7_654_321, 10**9])
QUANTITIES = st.one_of(st.integers(1, 50), st.integers(1, 10**9))
LINES = st.builds(
    line,
    step=st.integers(1, 4),
    attempt=st.integers(1, 2),
    kind=st.sampled_from(list(Kind.values)),
    quantity=QUANTITIES,
    price_micros=PRICES,
    source=st.sampled_from(["job_a", "job_b"]),
    at=st.integers(-40, 40).map(lambda days: NOW + timedelta(days=days)),
)
# (what, with which line, of which size, on which of the things that are there)
MOVES = st.tuples(
    st.sampled_from(["use", "use", "grant", "reverse", "hold", "pay", "raise", "release"]), LINES, st.integers(0, 2000), st.integers(0, 9)
)


@dataclass
class Books:
    """What must be so, in plain numbers."""

    balance: int = 0
    lines: dict[tuple, int] = field(default_factory=dict)
    grants: dict[str, int] = field(default_factory=dict)
    reversed: set[int] = field(default_factory=set)
    held: dict[int, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)


def exactly(quantity: int, price: int) -> int:
    """A second way to round to the nearest, halves up."""
    whole, rest = divmod(quantity * price, 1_000_000)
    return whole + (rest >= 500_000)


@RULES
@given(moves=st.lists(MOVES, max_size=24))
def test_the_books_are_right_after_every_move(world: World, things: tuple, moves: list[tuple]) -> None:
    tenant = create_tenant(world.alice, f"T{next(_numbers)}")
    account(tenant, 0)
    books = Books()
    for move in moves:
        _play(tenant, things, books, *move)
        found = Account.objects.get(tenant=tenant)
        assert (found.balance_micros, found.held_micros) == (books.balance, sum(books.held.values()))
        assert ledger.audit(tenant).sound
    assert {h.pk: h.micros for h in Hold.objects.filter(tenant=tenant)} == books.held


def _play(tenant: Tenant, things: tuple, books: Books, what: str, wanted: Any, size: int, which: int) -> None:
    if what == "use":
        if ledger.post(tenant, [wanted, wanted], NOW):
            assert wanted.key not in books.lines
            books.lines[wanted.key] = exactly(wanted.quantity, wanted.price_micros)
            books.balance -= books.lines[wanted.key]
        assert wanted.key in books.lines
    elif what == "grant" and size:
        key = f"g{which}"
        if key in books.grants:
            size = books.grants[key]
        else:
            books.grants[key] = size
            books.balance += size
        ledger.grant(tenant, key, size, "r", "o", NOW)
    elif what == "reverse" and (rows := list(tenant.entries.filter(reverses=None).exclude(source="starting-credit").order_by("pk"))):
        entry = rows[which % len(rows)]
        row = ledger.reverse(entry, "r", "o", NOW)
        assert row.amount_micros == -entry.amount_micros
        if not entry.source.startswith("test") and entry.pk not in books.reversed:
            books.reversed.add(entry.pk)
            books.balance -= entry.amount_micros
    elif what == "hold":
        free = books.balance - sum(books.held.values())
        try:
            hold = holds.place(_job(tenant, things), size, NOW)
        except holds.NotCovered:
            assert size > free
        else:
            assert size <= free
            books.held[hold.pk] = size
    elif books.held:
        _hold(books, list(books.held)[which % len(books.held)], what, size)


def _hold(books: Books, pk: int, what: str, size: int) -> None:
    hold = Hold.objects.select_related("tenant").get(pk=pk)
    if what == "pay":
        holds.pay(hold, size, NOW)
        books.held[pk] -= min(size, books.held[pk])
    elif what == "raise":
        free = books.balance - sum(books.held.values())
        fits = pk not in books.closed and (size <= books.held[pk] or size - books.held[pk] <= free)
        assert holds.raise_to(hold, size, NOW) is fits
        if fits:
            books.held[pk] = max(size, books.held[pk])
    elif what == "release":
        holds.release(hold, NOW)
        books.held[pk] = 0
        books.closed.add(pk)


@pytest.fixture
def things(world: World) -> tuple:
    return world.dataset(), world.reward()


def _job(tenant: Tenant, things: tuple) -> Job:
    """A row of the tenant; whose its dataset is, only the database's wall between tenants would ask, and that stands aside here."""
    dataset, reward = things
    dataset = type(dataset).objects.create(**{**_columns(dataset), "tenant": tenant})
    reward = type(reward).objects.create(**{**_columns(reward), "tenant": tenant})
    return Job.objects.create(tenant=tenant, name="x", dataset=dataset, reward=reward, spec={"base_model": "tiny-math"})


def _columns(row: Any) -> dict[str, Any]:
    return {f.name: getattr(row, f.name) for f in row._meta.concrete_fields if f.name not in ("id", "public_id")}


@RULES
@given(
    used=st.lists(st.tuples(st.integers(1, 9), st.sampled_from(list(Kind.values)), QUANTITIES, PRICES, st.integers(0, 60)), max_size=40),
    backwards=st.booleans(),
)
def test_days_jobs_kinds_and_files_all_add_up_to_the_same(world: World, used: list[tuple], backwards: bool) -> None:
    tenant = create_tenant(world.alice, f"T{next(_numbers)}")
    lines = [line(step, kind, quantity, price_micros=price, at=NOW + timedelta(days=days)) for step, kind, quantity, price, days in used]
    for one in reversed(lines) if backwards else lines:
        ledger.post(tenant, [one], NOW)
    entries = list(Entry.objects.filter(tenant=tenant).exclude(kind="credit"))
    months = [usage.Month(first=NOW.date().replace(month=month, day=1)) for month in (1, 2, 3)]
    for month in months:
        mine = [entry for entry in entries if month.first <= entry.at.date() < month.after]
        for column in ("day", "source", "model", "kind"):
            assert usage.total(usage.by(tenant, month, column)).micros == -sum(entry.amount_micros for entry in mine)
        rows = list(usage.daily_csv(tenant, month))[1:]
        assert sum(int(row.strip().rsplit(",", 1)[1]) for row in rows) == sum(entry.amount_micros for entry in mine)


@RULES
@given(
    changes=st.lists(st.tuples(st.integers(0, 30 * 24), PRICES), max_size=6, unique_by=lambda change: change[0]),
    hours=st.lists(st.integers(0, 30 * 24), min_size=1, max_size=8),
)
def test_each_step_costs_what_held_when_it_happened_however_late_it_is_told(
    world: World, engine: FakeEngine, changes: list, hours: list
) -> None:
    """Prices change in mid-period, steps come in any order of time, and all are stored long after."""
    began = datetime(2027, 1, 1, tzinfo=UTC) + timedelta(days=40 * next(_numbers))  # no two examples share a price
    for hour, price in changes:
        Price.objects.create(model="", kind="sampled", micros_per_million=price, effective_from=began + timedelta(hours=hour), set_by="t")
    before = PriceBook.read().price("sampled", "tiny-math", began - timedelta(seconds=1))
    run = Run(world, engine, train={"steps": 1000})
    for version, hour in enumerate(hours, start=1):
        event = run.tell("step", version=version, attempt=1, tokens={"sampled": 1237}, attribution="user")
        event["at"] = (began + timedelta(hours=hour)).isoformat()
    run.store(began + timedelta(days=365))
    paid = {step: micros for (step, _, _), (_, micros) in run.bill().items()}
    for version, hour in enumerate(hours, start=1):
        held = [price for since, price in sorted(changes) if since <= hour]
        assert paid[version] == exactly(1237, held[-1] if held else before)


@RULES
@given(sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=12), seed=st.integers(0, 2**31))
def test_events_in_pages_of_any_size_told_any_number_of_times_bill_the_same(
    world: World, engine: FakeEngine, sizes: list[int], seed: int
) -> None:
    chance = random.Random(seed)  # not drawn: the journal goes on from example to example
    run = Run(world, engine, train={"steps": 1000})
    whole = defaultdict(int)
    for version, size in enumerate(sizes, start=1):
        run.step(version, tokens={"prefill": 0, "sampled": size, "trained": size // 2}, rollout={})
        if chance.random() < 0.5:
            run.store()
        if chance.random() < 0.3:
            EngineCursor.objects.update(offset=chance.randrange(len(engine.journal)))
        whole["sampled"] += exactly(size, 400_000)
        whole["trained"] += exactly(size // 2, 600_000)
    run.store()
    told = defaultdict(int)
    for (_, _, kind), (_, micros) in run.bill().items():
        told[kind] += micros
    assert {kind: micros for kind, micros in told.items() if micros} == {kind: micros for kind, micros in whole.items() if micros}
    assert ledger.audit(world.sums).sound
