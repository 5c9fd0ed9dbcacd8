"""The engines and what each serves: health, limits, prices by model, and the jobs that are routed there by their base model."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count

from portal import gateway
from portal.billing.models import TOKEN_KINDS
from portal.billing.prices import PriceBook
from portal.jobs import catalog
from portal.jobs.models import OPEN_STATES, EngineCursor, Job


def registry(now: datetime) -> list[dict[str, Any]]:
    """One entry for each journal that was ever read; the first is the one that answers at ``ENGINE_URL`` now."""
    cursors = list(EngineCursor.objects.order_by("-current", "-updated_at"))
    jobs = _open_jobs()
    health = _health()
    found = [_entry(cursor, health if cursor.current else None, jobs, now) for cursor in cursors]
    return found or [
        {"name": "", "current": True, "health": health, "epoch": None, "offset": None, "seen": None, "jobs": {}, "url": settings.ENGINE_URL}
    ]


def models(now: datetime) -> list[dict[str, Any]]:
    """Each base model on offer, with its limits, its open jobs, and what a million tokens of each kind cost now (None: no price)."""
    counts: dict[str, int] = defaultdict(int)
    for _, model, count in _rows():
        counts[model] += count
    book = PriceBook.read()
    return [
        {"info": info, "open": counts[info.name], "prices": [(kind, _price(book, kind, info.name, now)) for kind in TOKEN_KINDS]}
        for info in catalog.known_models(now)
    ]


def _price(book: PriceBook, kind: str, model: str, now: datetime) -> int | None:
    try:
        return book.price(kind, model, now)
    except LookupError:
        return None


def _entry(cursor: EngineCursor, health: dict[str, Any] | None, jobs: dict[str, dict[str, int]], now: datetime) -> dict[str, Any]:
    return {
        "name": cursor.engine,
        "current": cursor.current,
        "health": health,
        "epoch": cursor.epoch,
        "offset": cursor.offset,
        "seen": cursor.updated_at,
        "jobs": jobs.get(cursor.engine, {}),
        "url": settings.ENGINE_URL if cursor.current else "",
    }


def _health() -> dict[str, Any]:
    try:
        return gateway.engine().health()
    except gateway.EngineDown as error:
        return {"ok": False, "stage": str(error)}


def _open_jobs() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for engine, model, count in _rows():
        found[engine][model] = count
    return found


def _rows() -> list[tuple[str, str, int]]:
    rows = Job.objects.filter(state__in=OPEN_STATES).order_by().values_list("engine", "spec__base_model")
    return [(engine, model, count) for engine, model, count in rows.annotate(count=Count("pk"))]
