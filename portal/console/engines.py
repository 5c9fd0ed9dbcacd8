"""The engines and what each serves: health, limits, prices by model, and the jobs that are routed there by their base model."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count

from portal import gateway
from portal.billing.models import TOKEN_KINDS
from portal.billing.prices import PriceBook
from portal.console.deeds import ENGINE
from portal.jobs import catalog
from portal.jobs.models import OPEN_STATES, EngineCursor, EngineModel, Job


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """What an operator does something to. ``name``: its configured name, "" for the one at MARLAAS_ENGINE_URL."""

    name: str

    @property
    def public_id(self) -> str:
        """What the audit log calls it."""
        return f"{ENGINE}:{self.name}" if self.name else ENGINE

    @property
    def title(self) -> str:
        return gateway.title(self.name)


def by_id(public_id: str) -> Engine | None:
    """Of those that are configured; without an id the first."""
    return next((engine for engine in all_of_them() if engine.public_id == (public_id or ENGINE)), None)


def all_of_them() -> list[Engine]:
    return [Engine(name=name) for name in gateway.names()]


def registry(now: datetime) -> list[dict[str, Any]]:
    """One entry for each configured engine with its health and the journal that it answers with, then the journals of earlier ones."""
    cursors = list(EngineCursor.objects.order_by("-updated_at"))
    jobs = _open_jobs()
    current = {cursor.name: cursor for cursor in cursors if cursor.current}
    served: dict[str, list[str]] = defaultdict(list)
    for model, name in EngineModel.objects.order_by("name").values_list("name", "served_by"):
        served[name].append(model)
    health = gateway.of_each(_health, gateway.names())
    live = [_entry(engine, health[engine.name], current.get(engine.name), jobs, served[engine.name]) for engine in all_of_them()]
    known = {engine.name for engine in all_of_them()}
    old = [_earlier(cursor, jobs) for cursor in cursors if not cursor.current or cursor.name not in known]
    return [*live, *old]


def models(now: datetime) -> list[dict[str, Any]]:
    """Each base model on offer, with its limits, its open jobs, and what a million tokens of each kind cost now (None: no price)."""
    counts: dict[str, int] = defaultdict(int)
    for _, model, count in _rows():
        counts[model] += count
    book = PriceBook.read()
    by = dict(EngineModel.objects.values_list("name", "served_by"))
    return [
        {
            "info": info,
            "by": gateway.title(by.get(info.name, "")),
            "open": counts[info.name],
            "prices": [(kind, _price(book, kind, info.name, now)) for kind in TOKEN_KINDS],
        }
        for info in catalog.known_models(now)
    ]


def _price(book: PriceBook, kind: str, model: str, now: datetime) -> int | None:
    try:
        return book.price(kind, model, now)
    except LookupError:
        return None


def _entry(
    engine: Engine, health: dict[str, Any], cursor: EngineCursor | None, jobs: dict[str, dict[str, int]], models: list[str]
) -> dict[str, Any]:
    """``models``: what it last said that it serves."""
    journal = _journal(cursor, jobs) if cursor else {"journal": "", "epoch": None, "offset": None, "seen": None, "jobs": {}}
    return {**journal, "engine": engine, "health": health, "models": models, "url": gateway.url(engine.name)}


def _earlier(cursor: EngineCursor, jobs: dict[str, dict[str, int]]) -> dict[str, Any]:
    return {**_journal(cursor, jobs), "engine": Engine(name=cursor.name), "health": None, "models": [], "url": ""}


def _journal(cursor: EngineCursor, jobs: dict[str, dict[str, int]]) -> dict[str, Any]:
    return {
        "journal": cursor.engine,
        "epoch": cursor.epoch,
        "offset": cursor.offset,
        "seen": cursor.updated_at,
        "jobs": jobs.get(cursor.engine, {}),
    }


def _health(name: str) -> dict[str, Any]:
    try:
        return gateway.engine(name).health()
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
