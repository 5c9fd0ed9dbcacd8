"""Help for the tests of money: lines, accounts with a known balance, and steps as the engine reports them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from portal.billing import ledger
from portal.billing.ledger import Line
from portal.billing.models import Account, Entry, Hold, Kind
from portal.jobs import ingest
from portal.jobs.ingest import Page
from portal.jobs.models import EngineCursor
from tenants.models import Tenant
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World


def line(step: int = 1, kind: str = Kind.SAMPLED, quantity: int = 1000, **changes: Any) -> Line:
    values = {"source_type": "job", "source": "job_a", "attempt": 1, "model": "tiny-math", "price_micros": 400_000, "at": NOW}
    return Line(step=step, kind=kind, quantity=quantity, **{**values, **changes})


def account(tenant: Tenant, micros: int, now: datetime = NOW) -> Account:
    """The tenant's account with exactly this balance."""
    found = ledger.account_of(tenant, now)
    for credit in tenant.entries.filter(kind="credit", reverses=None, reversal=None):
        ledger.reverse(credit, "for the test", "test", now)
    if micros:
        ledger.grant(tenant, f"test-{micros}", micros, "for the test", "test", now)
    found.refresh_from_db()
    assert found.balance_micros == micros
    return found


class Run:
    """A job of Alice's that the engine has accepted, and what the engine tells of it, stored page by page as the ingester does."""

    def __init__(self, world: World, engine: FakeEngine, **changes: Any):
        self.world, self.engine = world, engine
        self.job = world.job(**changes)
        engine.jobs[self.job.public_id] = self.job.submission.body
        if not any(event["job"] == self.job.public_id for event in engine.journal):
            self.tell("accepted")

    def tell(self, kind: str, **data: Any) -> dict[str, Any]:
        return self.engine.emit(self.job.public_id, kind, **data)

    def ready(self, version: int, attempt: int = 1, **summary: Any) -> None:
        counts = {"prompt_tokens": 1000, "env_tokens": 0, "cached_tokens": 600, "sampled_tokens": 2000, "judge_tokens": 0}
        self.tell("rollout_ready", version=version, attempt=attempt, summary={**counts, **summary})

    def step(self, version: int, attempt: int = 1, tokens: dict[str, int] | None = None, **data: Any) -> None:
        """Commits ``version``: 1000 prefill of which 600 were cached, 2000 sampled, 1500 trained."""
        counts = {"prefill": 1000, "sampled": 2000, "judge": 0, "trained": 1500, **(tokens or {})}
        more = {"rollout": {"cached_tokens": 600}, "attribution": "user", "skipped": None, **data}
        self.tell("step", step=version, version=version, attempt=attempt, tokens=counts, **more)

    def store(self, now: datetime = NOW) -> None:
        """What is new in the engine's journal."""
        cursor = EngineCursor.objects.get_or_create(engine=self.engine.engine, defaults={"current": True})[0]
        events = self.engine.journal[cursor.offset :]
        page = Page.parse({"engine": self.engine.engine, "epoch": 1, "events": events, "last": len(self.engine.journal)})
        ingest.store(page, cursor.offset, now)
        self.job.refresh_from_db()

    @property
    def account(self) -> Account:
        return Account.objects.get(tenant=self.job.tenant)

    @property
    def hold(self) -> Hold:
        return Hold.objects.get(job=self.job)

    def bill(self) -> dict[tuple[int, int, str], tuple[int, int]]:
        """(step, attempt, kind) → (quantity, what it costs)."""
        rows = Entry.objects.filter(source=self.job.public_id, source_type="job", reverses=None)
        return {(row.step, row.attempt, row.kind): (row.quantity, -row.amount_micros) for row in rows}

    def reasons(self) -> set[str]:
        return {row.reason for row in Entry.objects.filter(source=self.job.public_id)}

    def pauses(self) -> list[str]:
        return [command.reason for command in self.job.commands.filter(kind="pause", requested_by=None)]


STEP = {"prefill": (400, 40), "cached_prefill": (600, 15), "sampled": (2000, 800), "trained": (1500, 900)}
STEP_MICROS = 40 + 15 + 800 + 900


def billed(step: int, attempt: int = 1, *, free: tuple[str, ...] = (), only: tuple[str, ...] = tuple(STEP)) -> dict:
    """``Run.bill`` of one step of ``Run.step``."""
    return {(step, attempt, kind): (STEP[kind][0], 0 if kind in free else STEP[kind][1]) for kind in only}
