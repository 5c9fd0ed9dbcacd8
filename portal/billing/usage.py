"""A tenant's usage of one month, from the daily sums: however many entries there are, the page reads days."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import Sum

from portal.billing.models import Kind
from portal.errors import Invalid
from tenants.models import Tenant

COLUMNS = ("day", "source_type", "source", "model", "kind", "quantity", "amount_micros")
ENTRY_COLUMNS = (
    *("id", "at", "source_type", "source", "step", "attempt", "kind", "model", "quantity", "price_micros_per_million", "amount_micros"),
    *("reason", "reverses", "told_hour", "overage_micros"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Month:
    """``first``: its first day (UTC)."""

    first: date

    @property
    def key(self) -> str:
        return f"{self.first:%Y-%m}"

    @property
    def after(self) -> date:
        """The first day of the next one."""
        return (self.first + timedelta(days=31)).replace(day=1)

    @property
    def days(self) -> list[date]:
        return [self.first + timedelta(days=n) for n in range((self.after - self.first).days)]

    @property
    def previous(self) -> Month:
        return Month(first=(self.first - timedelta(days=1)).replace(day=1))

    @property
    def next(self) -> Month:
        return Month(first=self.after)


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """What a day, a job, a model or a kind used. ``micros``: what it costs, above 0; ``by_kind``: kind → (quantity, micros)."""

    name: str
    micros: int
    tokens: int
    by_kind: dict[str, tuple[int, int]]


def month_of(text: str | None, now: datetime) -> Month:
    """``text`` as in 2026-11; empty: this month. Raises ``Invalid``."""
    if not text:
        return Month(first=now.astimezone(UTC).date().replace(day=1))
    try:
        if len(text) != 7:
            raise ValueError
        first = date.fromisoformat(f"{text}-01")
    except ValueError:
        raise Invalid([("month", "must be a month such as 2026-11")]) from None
    if not 2000 <= first.year <= 2999:
        raise Invalid([("month", "must lie between 2000-01 and 2999-12")])
    return Month(first=first)


def rows(tenant: Tenant, month: Month) -> Any:
    return tenant.daily_usage.filter(day__gte=month.first, day__lt=month.after)


def by(tenant: Tenant, month: Month, column: str) -> list[Used]:
    """The month's usage by ``day``, ``source``, ``model`` or ``kind``; dearest first, days in order."""
    found: dict[Any, dict[str, tuple[int, int]]] = defaultdict(dict)
    grouped = rows(tenant, month).order_by().values(*{column, "kind"}).annotate(tokens=Sum("quantity"), amount=Sum("amount_micros"))
    for group in grouped:
        name, kind, quantity, amount = group[column], group["kind"], group["tokens"], group["amount"]
        found[name][kind] = (int(quantity), -int(amount))
    sums = [_sum(name, kinds) for name, kinds in found.items()]
    return sorted(sums, key=lambda s: s.name) if column == "day" else sorted(sums, key=lambda s: (-s.micros, -s.tokens, s.name))


def total(sums: Iterable[Used]) -> Used:
    kinds: dict[str, tuple[int, int]] = {}
    for found in sums:
        for kind, (quantity, micros) in found.by_kind.items():
            before = kinds.get(kind, (0, 0))
            kinds[kind] = (before[0] + quantity, before[1] + micros)
    return _sum("total", kinds)


def daily_csv(tenant: Tenant, month: Month) -> Iterator[str]:
    """By day, job, model and kind; amounts in micro-units, below 0 where the tenant pays."""
    return _csv(COLUMNS, rows(tenant, month).order_by("day", "source", "kind", "id").values_list(*COLUMNS).iterator(2000))


def entries_csv(tenant: Tenant, month: Month) -> Iterator[str]:
    """Each entry of the ledger whose use lies in the month, credit and reversals with it. An invoice's overage is the sum of
    ``overage_micros`` over the entries whose ``told_hour`` lies in its line's period.
    """
    first, after = (datetime(day.year, day.month, 1, tzinfo=UTC) for day in (month.first, month.after))
    names = ["price_micros" if name == "price_micros_per_million" else name for name in ENTRY_COLUMNS]
    entries = tenant.entries.filter(at__gte=first, at__lt=after).order_by("id").values_list(*names)
    return _csv(ENTRY_COLUMNS, entries.iterator(2000))


def _sum(name: Any, kinds: dict[str, tuple[int, int]]) -> Used:
    tokens = sum(quantity for kind, (quantity, _) in kinds.items() if kind != Kind.STORAGE)
    return Used(name=str(name), micros=sum(micros for _, micros in kinds.values()), tokens=tokens, by_kind=kinds)


class _Echo:
    """A file for ``csv`` whose write hands the line back."""

    def write(self, text: str) -> str:
        return text


def _csv(columns: tuple[str, ...], lines: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(columns)
    for line in lines:
        yield writer.writerow([_cell(value) for value in line])


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula is quoted: a job's reason is the engine's, and through it a tenant's."""
    if isinstance(value, datetime):
        return value.isoformat()
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
