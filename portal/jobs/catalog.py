"""What base models there are, as their engines last said it: fresh when they answer, remembered when one is down."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog
from pydantic import ValidationError

from engine.spec import ModelInfo
from portal import gateway
from portal.jobs.models import EngineModel

log = structlog.get_logger(__name__)
FRESH_FOR = timedelta(seconds=30)


def known_models(now: datetime) -> list[ModelInfo]:
    """Every model the door accepts. Asks the engines whose memory is older than ``FRESH_FOR``; empty only if none ever answered."""
    rows = _remembered()
    heard = {name: min((row.updated_at for row in rows if row.served_by == name), default=None) for name in gateway.names()}
    stale = [name for name, at in heard.items() if at is None or at < now - FRESH_FOR]
    if any([_remember(now, name, told) for name, told in gateway.of_each(_told, stale).items()]):  # a list: all of them are remembered
        rows = _remembered()
    return [ModelInfo.model_validate(row.info) for row in rows]


def refresh(now: datetime, engine: str = "") -> list[EngineModel]:
    """Ask this engine and remember what it serves; an empty list when it does not answer."""
    return _remember(now, engine, _told(engine))


def _told(engine: str) -> list[ModelInfo] | None:
    """None when it does not answer."""
    try:
        return [ModelInfo.model_validate(raw) for raw in gateway.engine(engine).models()]
    except (gateway.EngineDown, gateway.EngineRefused, ValidationError) as error:
        log.info("models_not_refreshed", engine=engine, reason=str(error))
        return None


def _remember(now: datetime, engine: str, infos: list[ModelInfo] | None) -> list[EngineModel]:
    """What two engines serve stays with the one that is configured first: a model has one engine."""
    if infos is None:
        return []
    before = gateway.names()[: gateway.names().index(engine)]
    taken = set(EngineModel.objects.filter(served_by__in=before).values_list("name", flat=True))
    mine = [info for info in infos if info.name not in taken]
    for info in mine:
        told = {"info": info.model_dump(mode="json"), "served_by": engine, "updated_at": now}
        EngineModel.objects.update_or_create(name=info.name, defaults=told)
    EngineModel.objects.filter(served_by=engine).exclude(name__in=[info.name for info in mine]).delete()
    return list(EngineModel.objects.filter(served_by=engine).order_by("name"))


def _remembered() -> list[EngineModel]:
    return list(EngineModel.objects.filter(served_by__in=gateway.names()).order_by("name"))
