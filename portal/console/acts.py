"""Doing a deed, and writing down who did it, to what, why, and whether it worked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import structlog

from portal.console.deeds import Deed, Order
from portal.console.models import Act
from portal.errors import Invalid
from portal.gateway import EngineDown, EngineRefused
from tenants.models import User

log = structlog.get_logger(__name__)


class Failed(Exception):
    """It was not done; the audit log has it with this reason. ``problems``: by field, where the refusal named any."""

    def __init__(self, message: str, problems: list[tuple[str, str]] | None = None):
        self.problems = problems or []
        super().__init__(message)


def perform(deed: Deed, by: User, target: Any, given: dict[str, Any], now: datetime) -> Act:
    """Written before it is tried, so that a deed whose process dies in the middle is not without a trace. Raises ``Failed``."""
    about = target.public_id
    act = Act.objects.create(
        at=now, by=by.email, deed=deed.slug, about=about, reason=given["reason"], outcome="was begun and did not come to its end"
    )
    try:
        detail = deed.do(Order(by=by, target=target, given=given, now=now))
    except (EngineDown, EngineRefused, Invalid) as error:
        _settle(act, {}, str(error)[:500])
        raise Failed(str(error), list(getattr(error, "problems", []))) from error
    _settle(act, detail, "")
    log.info("operator_act", deed=deed.slug, about=about, operator=by.pk, act=act.pk)
    return act


def note(deed: str, by: User, about: str, reason: str, now: datetime, **detail: Any) -> Act:
    """Write down what has been done by other means."""
    return Act.objects.create(at=now, by=by.email, deed=deed, about=about, reason=reason, detail=detail)


def _settle(act: Act, detail: dict[str, Any], outcome: str) -> None:
    act.detail, act.outcome = detail, outcome
    act.save(update_fields=["detail", "outcome"])
