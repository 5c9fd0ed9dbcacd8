"""The only writer of entries, balances and daily usage. Each call is one transaction, and doing it twice is doing it once.

Lock order, everywhere: jobs, then the account. Whoever holds an account waits for nothing but rows that are its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Sum

from portal.billing import outbox, setup
from portal.billing.models import CREDIT, DEBIT, MILLION, MONEY, Account, DailyUsage, Entry, Hold, SourceType
from portal.errors import Conflict, Invalid
from tenants.models import Tenant

PROVIDER = "Stripe"
MAX_QUANTITY = 10**9  # with the highest price still far below the largest bigint


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """Usage to be written down. ``price_micros`` is for a million; 0 needs a ``reason``, unless the price list says 0."""

    source_type: str
    source: str
    step: int
    attempt: int
    kind: str
    model: str
    quantity: int
    price_micros: int
    at: datetime
    reason: str = ""

    @property
    def key(self) -> tuple[str, str, int, int, str]:
        return self.source_type, self.source, self.step, self.attempt, self.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """What the account says against what its rows add up to; both in micro-units."""

    balance: int
    entries: int
    held: int
    holds: int
    usage: int
    charges: int

    @property
    def sound(self) -> bool:
        return self.balance == self.entries and self.held == self.holds and self.usage == self.charges


def price_of(quantity: int, micros_per_million: int) -> int:
    """Micro-units for ``quantity``: rounded once, to the nearest, halves up. The one place where billing rounds."""
    return (quantity * micros_per_million + MILLION // 2) // MILLION


def account_of(tenant: Tenant, now: datetime) -> Account:
    """The tenant's account, opened on first sight with the installation's starting credit."""
    found: Account | None = Account.objects.filter(tenant=tenant).first()
    if found:
        return found
    account: Account
    with transaction.atomic():
        account, opened = Account.objects.get_or_create(tenant=tenant, defaults={"plan": setup.default_plan(), "created_at": now})
        if opened and settings.STARTING_CREDIT_MICROS:
            grant(tenant, "starting-credit", settings.STARTING_CREDIT_MICROS, "starting credit", "installation", now)
            account.refresh_from_db()
    return account


def locked(tenant: Tenant, now: datetime) -> Account:
    """The account, this transaction's alone until it ends."""
    account_of(tenant, now)
    account: Account = Account.objects.select_for_update(no_key=True).get(tenant=tenant)
    return account


def post(tenant: Tenant, lines: Iterable[Line], now: datetime) -> list[Entry]:
    """Write ``lines``; the entries that are new. A line whose key stands already is passed over, whatever it says now.

    Raises ``ValueError`` for a quantity that is not above 0: what was not used has no line.
    """
    wanted = {line.key: line for line in reversed(list(lines))}
    for line in wanted.values():
        if not 0 < line.quantity <= MAX_QUANTITY:
            raise ValueError(f"a line of {line.quantity} {line.kind} for {line.source}: it must lie between 1 and {MAX_QUANTITY}")
    if not wanted:
        return []
    with transaction.atomic():
        account = locked(tenant, now)
        known = _known(tenant, wanted)
        fresh = [_entry(tenant, line, now) for key, line in reversed(wanted.items()) if key not in known]
        return _add(account, fresh, now)


def grant(tenant: Tenant, key: str, micros: int, reason: str, by: str, now: datetime) -> Entry:
    """Credit given by an operator. The same ``key`` gives it once; another amount under it is a ``Conflict``. Raises ``Invalid``."""
    problems = []
    if not 0 < micros <= 10**15:
        problems.append(("amount", "must be above 0 and at most 1,000,000,000"))
    if not reason.strip():
        problems.append(("reason", "say why: the tenant reads it"))
    if not by.strip():
        problems.append(("by", "say who gives it"))
    if not 0 < len(key) <= 64:
        problems.append(("key", "must have 1 to 64 characters"))
    if problems:
        raise Invalid(problems)
    with transaction.atomic():
        entry = _move(locked(tenant, now), CREDIT, SourceType.GRANT, key, micros, reason.strip(), by, now)
    if entry.amount_micros != micros:
        raise Conflict([("key", "another amount was given under this key")])
    return entry


def receive(tenant: Tenant, source_type: str, key: str, micros: int, reason: str, now: datetime, *, part: int = 0) -> Entry:
    """Credit that was paid for; once per (source type, key, part), whatever is told again."""
    with transaction.atomic():
        return _move(locked(tenant, now), CREDIT, source_type, key, micros, reason, PROVIDER, now, part)


def take_back(tenant: Tenant, source_type: str, key: str, micros: int, reason: str, now: datetime) -> Entry:
    """Credit whose money went back to where it came from, a part of it perhaps; once per (source type, key)."""
    with transaction.atomic():
        return _move(locked(tenant, now), DEBIT, source_type, key, micros, reason, PROVIDER, now)


def reverse(entry: Entry, reason: str, by: str, now: datetime) -> Entry:
    """The row that takes ``entry`` back whole; the same one when it was reversed before. Raises ``Invalid``."""
    if entry.reverses_id is not None:
        raise Invalid([("entry", "is a reversal itself; post the usage or credit anew instead")])
    if not reason.strip() or not by.strip():
        raise Invalid([("reason", "say why, and who does it: the tenant reads it")])
    with transaction.atomic():
        account = locked(entry.tenant, now)
        standing: Entry | None = Entry.objects.filter(reverses=entry).first()
        if standing is not None:
            return standing
        copied = {
            name: getattr(entry, name) for name in ("source_type", "source", "step", "attempt", "kind", "model", "quantity", "price_micros")
        }
        row = Entry(
            tenant=entry.tenant,
            at=now,
            created_at=now,
            amount_micros=-entry.amount_micros,
            reverses=entry,
            reason=reason.strip()[:300],
            by=by,
            **copied,
        )
        return _add(account, [row], now)[0]


def audit(tenant: Tenant) -> Audit:
    """Read in one transaction; anything unsound is a fault in this file or a hand in the database."""
    with transaction.atomic():
        account = Account.objects.select_for_update(no_key=True).get(tenant=tenant)
        entries = Entry.objects.filter(tenant=tenant)
        return Audit(
            balance=account.balance_micros,
            entries=_total(entries, "amount_micros"),
            held=account.held_micros,
            holds=_total(Hold.objects.filter(tenant=tenant), "micros"),
            usage=_total(DailyUsage.objects.filter(tenant=tenant), "amount_micros"),
            charges=_total(entries.exclude(kind__in=MONEY), "amount_micros"),
        )


def _total(rows: Any, field: str) -> int:
    return int(rows.aggregate(total=Sum(field))["total"] or 0)


def _known(tenant: Tenant, wanted: dict[tuple[Any, ...], Line]) -> set[tuple[Any, ...]]:
    sources = {line.source for line in wanted.values()}
    steps = {line.step for line in wanted.values()}
    rows = Entry.objects.filter(tenant=tenant, source__in=sources, step__in=steps, reverses=None)
    return set(rows.values_list("source_type", "source", "step", "attempt", "kind"))


def _entry(tenant: Tenant, line: Line, now: datetime) -> Entry:
    return Entry(
        tenant=tenant,
        at=line.at,
        created_at=now,
        source_type=line.source_type,
        source=line.source,
        step=line.step,
        attempt=line.attempt,
        kind=line.kind,
        model=line.model,
        quantity=line.quantity,
        price_micros=line.price_micros,
        amount_micros=-price_of(line.quantity, line.price_micros),
        reason=line.reason[:300],
    )


def _move(
    account: Account, kind: str, source_type: str, key: str, micros: int, reason: str, by: str, now: datetime, part: int = 0
) -> Entry:
    """The row that puts ``micros`` in (CREDIT) or takes them out (DEBIT); the one that stands, when it was written before."""
    tenant = account.tenant
    if micros <= 0:
        raise ValueError(f"a {kind} of {micros} micro-units for {key}")
    key_of = {"source_type": source_type, "source": key, "step": part, "kind": kind}
    standing: Entry | None = Entry.objects.filter(tenant=tenant, **key_of, reverses=None).first()
    if standing:
        return standing
    row = Entry(tenant=tenant, at=now, created_at=now, **key_of, reason=reason[:300], by=by)
    row.quantity, row.price_micros, row.amount_micros = micros, 0, micros if kind == CREDIT else -micros
    return _add(account, [row], now)[0]


def _add(account: Account, entries: list[Entry], now: datetime) -> list[Entry]:
    """Insert, and carry the outbox, the balance and the days along. The account is locked."""
    if not entries:
        return []
    outbox.tell(account, entries, now)
    Entry.objects.bulk_create(entries)
    Account.objects.filter(pk=account.pk).update(balance_micros=F("balance_micros") + sum(entry.amount_micros for entry in entries))
    _roll_up(account.tenant, [entry for entry in entries if entry.kind not in MONEY])
    return entries


def _roll_up(tenant: Tenant, entries: list[Entry]) -> None:
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for entry in entries:
        found = sums[entry.at.astimezone(UTC).date(), entry.source_type, entry.source, entry.model, entry.kind]
        found[0] += entry.quantity if entry.reverses_id is None else -entry.quantity
        found[1] += entry.amount_micros
    if not sums:
        return
    standing = DailyUsage.objects.filter(tenant=tenant, day__in={key[0] for key in sums}, source__in={key[2] for key in sums})
    rows = {(row.day, row.source_type, row.source, row.model, row.kind): row for row in standing}
    for key, (quantity, amount) in sums.items():
        day, source_type, source, model, kind = key
        if key not in rows:
            rows[key] = DailyUsage(tenant=tenant, day=day, source_type=source_type, source=source, model=model, kind=kind)
        rows[key].quantity += quantity
        rows[key].amount_micros += amount
    touched = [rows[key] for key in sums]
    DailyUsage.objects.bulk_create([row for row in touched if row.pk is None])
    DailyUsage.objects.bulk_update([row for row in touched if row.pk is not None], ["quantity", "amount_micros"])
