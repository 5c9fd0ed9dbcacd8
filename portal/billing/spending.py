"""What is used at once, and not step by step: chats, probes, trials of rewards. Credit is held before it begins, what it used is billed,
and the rest is free again. A job's way is the ``gate``'s; the refusals are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.db import transaction

from portal.billing import holds, ledger, limits, quotas, standing
from portal.billing.ledger import Line
from portal.billing.models import Hold
from portal.billing.money import shown
from portal.billing.prices import PriceBook
from portal.billing.refusals import NoCredit, PaymentDue, SpendingLimit
from tenants.models import Tenant

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spender:
    """What uses tokens: ``source`` is its public id, ``words`` what people call it, as in \"this answer\". ``model``: whose prices hold."""

    tenant: Tenant
    source_type: str
    source: str
    model: str
    words: str


def hold(spender: Spender, tokens: dict[str, int], now: datetime, *, lasts: timedelta) -> Hold:
    """Set aside what ``tokens`` (by kind) may cost at most, for ``lasts`` at the longest; held again, it is filled up and not doubled.

    Raises ``PaymentDue``, ``quotas.QuotaExceeded``, ``SpendingLimit``, ``NoCredit``; nothing is stored then.
    """
    tenant = spender.tenant
    if not (paid := standing.of(tenant, now)).may_start:
        raise PaymentDue([("payment", paid.reason)])
    limit = quotas.limits(tenant)["tokens_per_month"]
    if full := quotas.month_obstacle(tenant, limit, sum(tokens.values()), now, what=spender.words):
        raise quotas.QuotaExceeded([("quota.tokens_per_month", full)])
    needed = PriceBook.read().most(tokens, spender.model, now)
    if over := limits.obstacle(tenant, needed, now, what=spender.words):
        raise SpendingLimit([("limit", over)])
    try:
        return holds.place_for(tenant, spender.source_type, spender.source, needed, now, now + lasts)
    except holds.NotCovered as lacking:
        raise NoCredit([("credit", _no_credit(spender, lacking))]) from None


def bill(spender: Spender, lines: Sequence[Line], now: datetime, *, over: bool = True) -> None:
    """Write down what was used and take it out of the hold; ``over``: nothing more comes, the rest is free. Twice is once."""
    with transaction.atomic():
        added = ledger.post(spender.tenant, lines, now)
        charged = -sum(entry.amount_micros for entry in added)
        key = {"source_type": spender.source_type, "source": spender.source}
        standing_hold = Hold.objects.select_related("tenant").filter(tenant=spender.tenant, **key).first()
        if standing_hold is None:
            return
        if charged > standing_hold.micros:
            log.warning("charged_more_than_held", **key, charged_micros=charged, held_micros=standing_hold.micros)
        holds.pay(standing_hold, charged, now)
        if over:
            holds.release(standing_hold, now)


def used(spender: Spender, tokens: dict[str, int], now: datetime, *, step: int = 0, source: str = "", reason: str = "") -> list[Line]:
    """Lines of what was used, by kind; at 0 where there is a ``reason`` not to bill it. ``source``: another name of it in the ledger."""
    prices = PriceBook.read()
    return [
        Line(
            source_type=spender.source_type,
            source=source or spender.source,
            step=step,
            attempt=0,
            kind=kind,
            model=spender.model,
            quantity=quantity,
            price_micros=0 if reason else prices.price(kind, spender.model, now),
            at=now,
            reason=reason,
        )
        for kind, quantity in tokens.items()
        if quantity
    ]


def _no_credit(spender: Spender, lacking: holds.NotCovered) -> str:
    return (
        f"{spender.words} may cost {shown(lacking.needed)}, {shown(lacking.available)} of your credit is free; ask for less, "
        "wait until other work ends, or get more credit"
    )
