"""What a month will have cost: what it has cost, and for the days to come the pace of the last seven that are over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Sum

from portal.billing.usage import Month
from tenants.models import Tenant

PACE_DAYS = 7
ROUND = 10_000  # micro-units: a guess has no more places than money


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Micro-units. ``a_day``: the mean of the last days, those without use included; the first of use is where they begin."""

    spent: int
    a_day: int
    month_end: int
    days: int


def forecast(tenant: Tenant, now: datetime) -> Forecast:
    today = now.astimezone(UTC).date()
    month = Month(first=today.replace(day=1))
    rows = tenant.daily_usage.filter(day__gte=min(month.first, today - timedelta(days=PACE_DAYS)), day__lte=today)
    by_day = {day: -int(amount) for day, amount in rows.order_by().values_list("day").annotate(Sum("amount_micros"))}
    spent = sum(amount for day, amount in by_day.items() if day >= month.first)
    over = [day for day in (today - timedelta(days=n) for n in range(1, PACE_DAYS + 1)) if by_day and day >= min(by_day)]
    a_day = max(0, sum(by_day.get(day, 0) for day in over) // len(over)) if over else 0
    rest = (month.after - today).days - 1
    # Of today as much is to come as is missing from the pace.
    today_rest = max(0, a_day - by_day.get(today, 0))
    month_end = max(spent, -(-(spent + today_rest + rest * a_day) // ROUND) * ROUND) if a_day else spent
    return Forecast(spent=spent, a_day=-(-a_day // ROUND) * ROUND, month_end=month_end, days=len(over))
