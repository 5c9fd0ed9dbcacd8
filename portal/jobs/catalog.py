"""What base models there are, as the engine last said it: fresh when it answers, remembered when it is down."""

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
    """Every model the door accepts. Asks the engine when the memory is older than ``FRESH_FOR``; empty only if it never answered."""
    rows = list(EngineModel.objects.order_by("name"))
    if not rows or min(row.updated_at for row in rows) < now - FRESH_FOR:
        rows = refresh(now) or rows
    return [ModelInfo.model_validate(row.info) for row in rows]


def refresh(now: datetime) -> list[EngineModel]:
    """Ask the engine and remember; an empty list when it does not answer."""
    try:
        infos = [ModelInfo.model_validate(raw) for raw in gateway.engine().models()]
    except (gateway.EngineDown, gateway.EngineRefused, ValidationError) as error:
        log.info("models_not_refreshed", reason=str(error))
        return []
    for info in infos:
        EngineModel.objects.update_or_create(name=info.name, defaults={"info": info.model_dump(mode="json"), "updated_at": now})
    EngineModel.objects.exclude(name__in=[info.name for info in infos]).delete()
    return list(EngineModel.objects.order_by("name"))
