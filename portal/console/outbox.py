"""What is to be told to the payment provider and was not yet, whichever app keeps it."""

from __future__ import annotations

from datetime import datetime
from typing import Any


def waiting(now: datetime) -> dict[str, Any]:
    """{"outbox": rows that wait, "outbox_seconds": age of the oldest}; both None where nothing is told to anybody."""
    return {"outbox": None, "outbox_seconds": None}
