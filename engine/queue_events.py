"""Telling a waiting job's owner why it waits: once, and again only when the reason becomes another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from engine.core.scheduler import Scheduler
from engine.core.view import JobView

QUEUE_CODES = frozenset({"kv", "slots", "tenant_cap", "admission"})
MOST_FORECASTS = 1000  # open jobs up to which an event carries a forecast: it costs a look at each of them
_MOVERS = (Submitted, Resumed, Stopped, Reprioritised, AdmissionChanged, PolicyChanged, Admit, Hold, Release)
_STEP_ENDS = (RolloutFailed, TrainDone, TrainFailed)


def may_change_queue(fact: Fact, commands: list[Command]) -> bool:
    """Whether the reason of any job to wait may be another now. Looking costs O(n), so it is not done at every hand-over of a step."""
    return isinstance(fact, _MOVERS) or any(isinstance(command, _MOVERS) for command in commands)


def left_idle(fact: Fact, commands: list[Command]) -> str | None:
    """The job that finds nothing to do after its step, if there is one."""
    idle = isinstance(fact, _STEP_ENDS) and all(command.job != fact.job for command in commands)
    return fact.job if idle else None


def newly_waiting(scheduler: Scheduler, told: Callable[[str], str], job: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(job, data of its ``waiting`` event) for each job (or only ``job``) whose code differs from the one that it was ``told`` last.

    A job between two steps hears only what people can do something about: ``QUEUE_CODES``.
    """
    codes = scheduler.waiting_for(job)
    names = [name for name, code in codes.items() if code != told(name) and (code in QUEUE_CODES or not scheduler.jobs[name].admitted)]
    if not names:
        return
    forecasts = job is None and len(scheduler.jobs) <= MOST_FORECASTS
    views = scheduler.view() if forecasts else {name: scheduler.view_of(name) for name in names}
    for name in names:
        view = views[name]
        yield name, {"reason": view.reason, "code": view.code, "position": view.position, **seconds_left(view)}


def seconds_left(view: JobView) -> dict[str, float | None]:
    """``next_seconds`` and ``eta_seconds`` of ``core.forecast``, to a tenth: more would pretend."""
    return {name: None if (seconds := getattr(view, name)) is None else round(seconds, 1) for name in ("next_seconds", "eta_seconds")}
