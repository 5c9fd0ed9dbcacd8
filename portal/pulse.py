"""Signs of life of the portal's own processes: each leaves one in the cache after every round, and whoever looks sees how old it is.

A cache that is down makes everybody look dead, which is not far from the truth: nothing live reaches a page without it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import structlog
from django.core.cache import cache

log = structlog.get_logger(__name__)

KINDS = ("ingester", "worker")  # the worker's comes with the sweep that beat asks for every five seconds: it tells of both
LATE_SECONDS = 60  # an ingester's long poll lasts twenty
_KEEP_SECONDS = 24 * 3600


def beat(kind: str, now: datetime, **facts: Any) -> None:
    """``facts``: small and JSON; they replace the last ones."""
    try:
        cache.set(f"pulse:{kind}", {"at": now.timestamp(), **facts}, _KEEP_SECONDS)
    except Exception as error:  # the cache's client has no common base for its errors; a missed beat must not stop the work it tells of
        log.warning("pulse_lost", process=kind, reason=str(error))


def pulses(now: datetime) -> dict[str, dict[str, Any]]:
    """By kind: {"alive", "seconds" since its last beat (None: never), and its facts}. Raises what the cache raises."""
    found = cache.get_many([f"pulse:{kind}" for kind in KINDS])
    return {kind: _pulse(found.get(f"pulse:{kind}"), now) for kind in KINDS}


def _pulse(known: dict[str, Any] | None, now: datetime) -> dict[str, Any]:
    if known is None:
        return {"alive": False, "seconds": None}
    seconds = max(0.0, now.timestamp() - known["at"])
    return {**known, "alive": seconds < LATE_SECONDS, "seconds": seconds}
