"""Which engines cannot be reached just now, or answer while a part of them does not serve, and since when: the ingester asks each without
end, and leaves here what it meets.

Kept in the cache, and only for as long as somebody repeats it: what an ingester that died last said is soon said by nobody. A cache that
does not answer tells of no engine, so that no page fails for a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django.core.cache import cache

from portal import gateway
from portal.jobs import engines
from portal.jobs.models import EngineCursor, EngineModel, Job

log = structlog.get_logger(__name__)

GROUP = "engines"  # the channel-layer group that hears when an engine is lost or found
TOLD_AFTER = timedelta(seconds=2)  # an engine that restarts its door is not away
PARTS = ("sampler", "trainer")  # what may be out while the engine answers; a manager that is out does not answer
_KEEP_SECONDS = 90  # a try takes half a minute at most, and the pauses between them five seconds
_KEEP_PARTS_SECONDS = 30  # they are looked at every two seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Away:
    """``since``: when the engine answered last. ``of``: the base models that it serves, where others are served by one that answers.

    ``part``: the engine answers, and this part of it has not served since then.
    """

    since: datetime
    of: str
    part: str = ""


def tell_parts(name: str, out: dict[str, datetime]) -> None:
    """``out``: {part: since when} of which none serves at the engine ``name``; said again with each look, and none of them ends it.

    A manager that was restarted dates them anew: the earliest moment that is known stands.
    """
    try:
        if not out:
            cache.delete(_parts_key(name))
            return
        known = cache.get(_parts_key(name)) or {}
        since = {part: min(at.timestamp(), known.get(part, at.timestamp())) for part, at in out.items()}
        cache.set(_parts_key(name), since, _KEEP_PARTS_SECONDS)
    except Exception as error:  # as in ``lost``
        log.warning("reach_not_told", engine=name, reason=str(error))


def parts_out(jobs: Iterable[Job]) -> dict[int, dict[str, datetime]]:
    """{job key: {part: since when}} of the open jobs whose engine answers but has a part that does not serve; queries only when one has."""
    told = _known(_parts_key)
    gone = _gone() if told else {}
    engines_out = {name: out for name, out in told.items() if name not in gone}
    if not engines_out:
        return {}
    names = _Names()
    found = {job.pk: engines_out.get(names.of(job), {}) for job in jobs if job.is_open}
    return {job: {part: _moment(at) for part, at in out.items()} for job, out in found.items() if out}


def lost(name: str, since: datetime) -> datetime:
    """The engine ``name`` answered last at ``since``, and it is said again with each try; the earliest such moment that is known."""
    try:
        known = cache.get(_key(name))
        since = min(since, _moment(known)) if known else since
        cache.set(_key(name), since.timestamp(), _KEEP_SECONDS)
    except Exception as error:  # the cache's client has no common base for its errors, and the ingester must go on asking
        log.warning("reach_not_told", engine=name, reason=str(error))
    return since


def found(name: str) -> bool:
    """It answers; whether it was away before."""
    try:
        return cache.delete(_key(name))
    except Exception as error:  # as above
        log.warning("reach_not_told", engine=name, reason=str(error))
        return True


def since(job: Job) -> datetime | None:
    """Since when this job's engine cannot be reached; None when it can, or when the job is over and needs none."""
    return away([job]).get(job.pk)


def of_engine(job: Job) -> datetime | None:
    """As ``since``, of a job that is over too: what the engine keeps of it cannot be had either."""
    gone = _gone()
    return gone.get(engines.name_of(job)) if gone else None


def of_models(names: Iterable[str] | None = None, *, needs: str = "") -> Away | None:
    """What is to be said where somebody chooses among these base models (by default all that are known), or has chosen one; None while
    all their engines answer, and have the part that is needed.
    """
    known = EngineModel.objects.filter(served_by__in=gateway.names()).order_by("name")
    names = names if names is None else list(names)
    for part, out in (("", _gone()), (needs, _without(needs))):
        if not out:
            continue
        names = list(known.values_list("name", flat=True)) if names is None else names
        silent = {name: out[engine] for name in names if (engine := engines.name_for(name)) in out}
        if silent:
            return Away(since=min(silent.values()), of=", ".join(silent) if len(silent) < len(names) else "", part=part)
    return None


def away(jobs: Iterable[Job]) -> dict[int, datetime]:
    """{job key: since when} of the open jobs whose engine cannot be reached; queries only when there is such an engine."""
    gone = _gone()
    if not gone:
        return {}
    names = _Names()
    return {job.pk: gone[name] for job in jobs if job.is_open and (name := names.of(job)) in gone}


def _without(part: str) -> dict[str, datetime]:
    """{engine: since when} of those in which no such part serves."""
    return {name: _moment(out[part]) for name, out in _known(_parts_key).items() if part in out} if part else {}


def _gone() -> dict[str, datetime]:
    return {name: _moment(stamp) for name, stamp in _known(_key).items()}


def _known(key: Callable[[str], str]) -> dict[str, Any]:
    """{engine: what is kept of it under ``key``}."""
    try:
        known = cache.get_many([key(name) for name in gateway.names()])
    except Exception as error:  # as above
        log.warning("reach_not_known", reason=str(error))
        return {}
    return {name: known[key(name)] for name in gateway.names() if key(name) in known}


class _Names:
    """``engines.name_of`` for many jobs: those that an engine has taken cost one query in all."""

    def __init__(self) -> None:
        several = len(gateway.names()) > 1
        self._journals = dict(EngineCursor.objects.values_list("engine", "name")) if several else {}

    def of(self, job: Job) -> str:
        return self._journals[job.engine] if job.engine in self._journals else engines.name_of(job)


def _key(name: str) -> str:
    return f"engine-away:{name}"


def _parts_key(name: str) -> str:
    return f"engine-parts:{name}"


def _moment(stamp: float) -> datetime:
    return datetime.fromtimestamp(stamp, UTC)
