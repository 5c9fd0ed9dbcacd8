"""What is stored, by day: the megabytes of each organisation's datasets, once for each day that is over (UTC)."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import structlog
from django.db.models import Sum
from django.db.models.functions import Coalesce

from portal.billing import ledger
from portal.billing.ledger import Line
from portal.billing.models import DailyUsage, Kind, SourceType
from portal.billing.prices import PriceBook
from tenants.models import Tenant

log = structlog.get_logger(__name__)

MEGABYTE = 10**6
BACK_DAYS = 3  # that are made up for, when nobody counted: longer ago nobody knows what has been deleted since
SOURCE = "datasets"


def charge(now: datetime) -> int:
    """Write down the last days that nobody has yet; how many lines are new. What was deleted before the count costs nothing."""
    today = now.astimezone(UTC).date()
    return sum(_charge(today - timedelta(days=back), now) for back in range(BACK_DAYS, 0, -1))


def _charge(day: date, now: datetime) -> int:
    """The key in the ledger is the day, so whoever counts again changes nothing."""
    ends = datetime.combine(day + timedelta(days=1), time(), UTC)
    counted = DailyUsage.objects.filter(day=day, kind=Kind.STORAGE).values("tenant")
    stored = Tenant.objects.filter(deleted_at=None, datasets__created_at__lt=ends).exclude(pk__in=counted)
    size = Sum(Coalesce("datasets__train_bytes", 0) + Coalesce("datasets__eval_bytes", 0))
    new, prices = 0, PriceBook.read()
    for tenant in stored.annotate(stored_bytes=size).order_by("pk"):
        megabytes = (tenant.stored_bytes + MEGABYTE // 2) // MEGABYTE
        if megabytes and ledger.account_of(tenant, now).created_at < ends:
            new += len(ledger.post(tenant, [_line(day, megabytes, ends - timedelta(seconds=1), prices)], now))
    return new


def _line(day: date, megabytes: int, at: datetime, prices: PriceBook) -> Line:
    return Line(
        source_type=SourceType.STORAGE,
        source=SOURCE,
        step=day.toordinal(),
        attempt=0,
        kind=Kind.STORAGE,
        model="",
        quantity=megabytes,
        price_micros=prices.price(Kind.STORAGE, "", at),
        at=at,
    )
