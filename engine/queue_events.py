"""Telling a waiting job's owner why it waits: once, and again only when the reason becomes another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.core.messages import (
    AdmissionChanged,
    Admit,
    Command,
    Fact,
    Hold,
    PolicyChanged,
    Release,
    Reprioritised,
    Resumed,
    RolloutFailed,
    Stopped,
    Submitted,
    TrainDone,
    TrainFailed,
)
from engine.core.view import JobView

QUEUE_CODES = frozenset({"kv", "slots", "tenant_cap", "admission"})
_MOVERS = (Submitted, Resumed, Stopped, Reprioritised, AdmissionChanged, PolicyChanged, Admit, Hold, Release)
_STEP_ENDS = (RolloutFailed, TrainDone, TrainFailed)


def may_change_queue(fact: Fact, commands: list[Command]) -> bool:
    """Whether anybody's reason to wait may be another now. Looking costs O(n log n), so it is not done at every hand-over of a step."""
    idle = isinstance(fact, _STEP_ENDS) and all(command.job != fact.job for command in commands)
    return idle or isinstance(fact, _MOVERS) or any(isinstance(command, _MOVERS) for command in commands)


def changed_reasons(views: Iterable[JobView], told: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """(job, data of its ``waiting`` event) for each queued job whose code differs from the one that it was ``told`` last."""
    return [
        (view.job, {"reason": view.reason, "code": view.code, "position": view.position, **seconds_left(view)})
        for view in views
        if view.phase == "waiting" and (view.code in QUEUE_CODES or not view.admitted) and told.get(view.job, "") != view.code
    ]


def seconds_left(view: JobView) -> dict[str, float | None]:
    """``next_seconds`` and ``eta_seconds`` of ``core.forecast``, to a tenth: more would pretend."""
    return {name: None if (seconds := getattr(view, name)) is None else round(seconds, 1) for name in ("next_seconds", "eta_seconds")}
