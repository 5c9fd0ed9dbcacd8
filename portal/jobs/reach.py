"""Which engines cannot be reached just now, and since when: the ingester asks each without end, and leaves here what it meets.

Kept in the cache, and only for as long as somebody repeats it: what an ingester that died last said is soon said by nobody. A cache that
does not answer tells of no engine, so that no page fails for a notice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from django.core.cache import cache

from portal import gateway
from portal.jobs import engines
from portal.jobs.models import EngineCursor, EngineModel, Job

log = structlog.get_logger(__name__)

GROUP = "engines"  # the channel-layer group that hears when an engine is lost or found
TOLD_AFTER = timedelta(seconds=2)  # an engine that restarts its door is not away
_KEEP_SECONDS = 90  # a try takes half a minute at most, and the pauses between them five seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Away:
    """``since``: when the engine answered last. ``of``: the base models that it serves, where others are served by one that answers."""

    since: datetime
    of: str


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


def of_models(names: Iterable[str] | None = None) -> Away | None:
    """What is to be said where somebody chooses among these base models (by default all that are known), or has chosen one; None while
    all their engines answer.
    """
    gone = _gone()
    if not gone:
        return None
    known = EngineModel.objects.filter(served_by__in=gateway.names()).order_by("name")
    names = list(known.values_list("name", flat=True) if names is None else names)
    silent = {name: gone[engine] for name in names if (engine := engines.name_for(name)) in gone}
    return Away(since=min(silent.values()), of=", ".join(silent) if len(silent) < len(names) else "") if silent else None


def away(jobs: Iterable[Job]) -> dict[int, datetime]:
    """{job key: since when} of the open jobs whose engine cannot be reached; queries only when there is such an engine."""
    gone = _gone()
    if not gone:
        return {}
    names = _Names()
    return {job.pk: gone[name] for job in jobs if job.is_open and (name := names.of(job)) in gone}


def _gone() -> dict[str, datetime]:
    try:
        known = cache.get_many([_key(name) for name in gateway.names()])
    except Exception as error:  # as above
        log.warning("reach_not_known", reason=str(error))
        return {}
    return {name: _moment(known[_key(name)]) for name in gateway.names() if _key(name) in known}


class _Names:
    """``engines.name_of`` for many jobs: those that an engine has taken cost one query in all."""

    def __init__(self) -> None:
        several = len(gateway.names()) > 1
        self._journals = dict(EngineCursor.objects.values_list("engine", "name")) if several else {}

    def of(self, job: Job) -> str:
        return self._journals[job.engine] if job.engine in self._journals else engines.name_of(job)


def _key(name: str) -> str:
    return f"engine-away:{name}"


def _moment(stamp: float) -> datetime:
    return datetime.fromtimestamp(stamp, UTC)
