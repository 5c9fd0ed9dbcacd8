"""What is to be told to the payment provider and was not yet."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings

from portal.billing import outbox
from portal.billing.models import MeterEvent


def waiting(now: datetime) -> dict[str, Any]:
    """{"outbox": rows that are due, "outbox_seconds": age of the oldest}; both None where nothing is told to anybody."""
    if not settings.STRIPE_KEY:
        return {"outbox": None, "outbox_seconds": None}
    due = MeterEvent.objects.filter(sent_at=None, sealed_at__isnull=False)
    return {"outbox": due.count(), "outbox_seconds": max(0.0, outbox.oldest(now).total_seconds())}
