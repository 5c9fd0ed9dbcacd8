"""Help for the tests of money: lines, accounts with a known balance, and steps as the engine reports them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from portal.billing import ledger
from portal.billing.ledger import Line
from portal.billing.models import Account, Kind
from tenants.models import Tenant
from tests.portal.world import NOW


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
