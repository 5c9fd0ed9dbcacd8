"""Pull the engine's numbered stream into rows: exactly once, in order, whatever dies in between.

One transaction stores a page of events, applies lifecycle and moves the cursor by compare-and-set; a second ingester loses that set and
rolls back. Announcements go out after the commit and may be lost: whoever listens reads rows.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import structlog
from asgiref.sync import sync_to_async
from django.db import OperationalError, close_old_connections, transaction
from django.db.models import Q
from django.utils import timezone
from pydantic import ValidationError

from engine.events import KINDS, Event
from portal import metrics, pulse
from portal.billing import charging, gate
from portal.gateway import AsyncGateway, EngineDown, EngineRefused, EngineSlow
from portal.jobs import catalog, compare, lifecycle, reach, series
from portal.jobs.lifecycle import Fact, IllegalTransition, LostRace, View
from portal.jobs.models import OPEN_STATES, EngineCursor, Job, JobEvent, JobSubmission, State
from portal.notices import telling

log = structlog.get_logger(__name__)

PAGE = 1000
WAIT_SECONDS = 20.0
BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


class BadStream(Exception):
    """The engine's answer breaks the contract; nothing of it is stored."""


class CursorMoved(Exception):
    """Another ingester stored this page first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One answer of ``GET /events``, parsed."""

    engine: str
    epoch: int
    last: int
    events: list[Event]

    @classmethod
    def parse(cls, answer: dict[str, Any]) -> Page:
        try:
            events = [Event.model_validate(raw) for raw in answer["events"]]
            page = cls(engine=str(answer["engine"]), epoch=int(answer["epoch"]), last=int(answer["last"]), events=events)
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            raise BadStream(f"an answer that is no page of events: {error}") from error
        offsets = [event.offset for event in events]
        if offsets != sorted(set(offsets)):
            raise BadStream(f"offsets out of order: {offsets[:20]}")
        return page


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """``heard_at``: when the engine answered last, as far as this process knows; ``noticed_at``: when a call to it first failed."""

    heard_at: datetime
    noticed_at: datetime


@dataclass(kw_only=True)
class Ingester:
    """``announce(group, seq)`` is awaited after each commit, ``announce_reach()`` when the engine is lost or found; neither may raise.

    ``clock`` gives now.
    """

    gateway: AsyncGateway
    name: str = ""  # of the engine that ``gateway`` leads to
    announce: Callable[[str, int], Awaitable[None]]
    announce_reach: Callable[[], Awaitable[None]]
    clock: Callable[[], datetime] = timezone.now
    wait_seconds: float = WAIT_SECONDS
    failures: int = field(default=0, init=False)
    lag_seconds: float = field(default=0.0, init=False)  # from the newest event of the last page to its row
    _compared: tuple[str, int] = field(default=("", 0), init=False)  # the engine and epoch that the rows were compared with last
    _silence: Silence | None = field(default=None, init=False)  # while the engine has not answered
    _told_away: bool | None = field(default=None, init=False)  # None: only an earlier ingester may have told anything

    async def run(self) -> None:
        """For ever, until cancelled. Whatever fails is tried again with growing pauses: the cursor has not moved."""
        while True:
            asked_at = self.clock()  # each call follows the answer to the one before at once: until here the engine was heard
            try:
                await sync_to_async(close_old_connections)()
                await self.pull()
                self.failures = 0
                await self._is_back()
                await sync_to_async(pulse.beat)("ingester", self.clock(), lag_seconds=self.lag_seconds)
            except (EngineDown, EngineRefused) as error:
                await self._is_away(error, asked_at)
                await self._pause("engine_away", error)
            except BadStream as error:
                log.error("bad_stream", exc_info=True)
                await self._pause("bad_stream", error)
            except (CursorMoved, LostRace) as error:
                await self._pause("ingest_race", error)
            except OperationalError as error:  # the database restarts, or another writer holds it for too long
                await self._pause("database_away", error)

    async def pull(self) -> int:
        """One long poll and the storing of its answer; the number of new events."""
        cursor = await sync_to_async(current_cursor)(self.name)
        answer = await self.gateway.events(cursor.offset, self.wait_seconds, PAGE)
        page = Page.parse(answer)
        if page.engine != cursor.engine:
            for group, seq in (await sync_to_async(change_engine)(page.engine, page.epoch, self.clock(), self.name)).items():
                await self.announce(group, seq)
            return 0  # the answer was to another journal's cursor
        if (page.engine, page.epoch) != self._compared and await self._compare(page.engine, page.epoch):
            return 0  # the answer was to a cursor that is no longer
        if page.last < cursor.offset:
            raise BadStream(f"the journal of {page.engine} went back from {cursor.offset} to {page.last} within one epoch")
        reached = await sync_to_async(store)(page, cursor.offset, self.clock())
        self._measure(page)
        for group, seq in reached.items():
            await self.announce(group, seq)
        return len(page.events)

    def _measure(self, page: Page) -> None:
        self.lag_seconds = max(0.0, (self.clock() - page.events[-1].at).total_seconds()) if page.events else 0.0
        if page.events:
            metrics.ingest_lag.observe(self.lag_seconds)
        for event in page.events:
            metrics.events.labels(event.kind if event.kind in KINDS else metrics.UNKNOWN).inc()

    async def _compare(self, engine: str, epoch: int) -> bool:
        """At start and with each new epoch of the engine: are the rows and the engine of one mind? Whether the cursor was moved."""
        before = await sync_to_async(compare.taken)()
        try:
            status = compare.Status.parse(await self.gateway.status())
        except compare.BadStatus as error:  # an engine of an older release, while an upgrade is under way
            log.warning("engine_not_compared", reason=str(error))
            self._compared = (engine, epoch)
            return False
        found = await sync_to_async(compare.mend)(status, before, self.clock(), self.name)
        for group, seq in found.announce.items():
            await self.announce(group, seq)
        self._compared = (status.engine, status.epoch)
        return found.moved

    async def _is_away(self, error: Exception, asked_at: datetime) -> None:
        """Told to who looks at jobs; a refusal too is an engine that nothing can be had from.

        Silence is dated from the last answer: a call waits for half a minute before it gives up, and that the engine was there meanwhile is
        more than anybody knows.
        """
        now = self.clock()
        self._silence = self._silence or Silence(heard_at=asked_at, noticed_at=now)
        if now - self._silence.noticed_at < reach.TOLD_AFTER and not isinstance(error, EngineSlow):
            return
        since = await sync_to_async(reach.lost)(self.name, self._silence.heard_at)
        self._silence = replace(self._silence, heard_at=since)
        if not self._told_away:
            self._told_away = True
            await self.announce_reach()

    async def _is_back(self) -> None:
        self._silence = None
        if self._told_away is not False:
            self._told_away = False
            if await sync_to_async(reach.found)(self.name):
                await self.announce_reach()

    async def _pause(self, event: str, error: Exception) -> None:
        seconds = BACKOFF_SECONDS[min(self.failures, len(BACKOFF_SECONDS) - 1)]
        self.failures += 1
        metrics.ingest_failures.labels(event).inc()
        if self.failures in (1, 10, 100):
            log.warning(event, engine=self.name, reason=str(error), failures=self.failures, next_try_seconds=seconds)
        await asyncio.sleep(seconds)


def current_cursor(name: str = "") -> EngineCursor:
    """The cursor of the journal that answered last under this engine's name; an empty one before any has."""
    return EngineCursor.objects.filter(current=True, name=name).first() or EngineCursor()


def change_engine(engine: str, epoch: int, now: datetime, name: str = "") -> dict[str, int]:
    """Another journal answers under ``name``: its cursor (at 0 when it is new) becomes current, and open jobs of the old one end.

    A journal that is known under another name has moved there with its jobs.
    """
    with transaction.atomic():
        EngineCursor.objects.filter(name=name).exclude(engine=engine).update(current=False)
        EngineCursor.objects.update_or_create(engine=engine, defaults={"name": name, "current": True, "epoch": epoch, "updated_at": now})
        gone = EngineCursor.objects.filter(name=name, current=False).values("engine")
        lost = list(Job.objects.select_for_update().filter(state__in=OPEN_STATES, engine__in=gone))
        for job in lost:
            lifecycle.orphan(job, now)
            log.error("job_orphaned", job=job.public_id, engine=job.engine, new_engine=engine)
        # Sent to the old engine, but not heard of from there: the sweeper sends them again, which is idempotent.
        submitted = JobSubmission.objects.filter(Q(sent_to=name) | Q(sent_to=None), job__state=State.SUBMITTED)
        submitted.update(answered_at=None)
    log.warning("engine_changed", engine=engine, epoch=epoch)
    catalog.refresh(now, name)
    return {job.group: job.last_seq for job in lost}


def store(page: Page, after: int, now: datetime) -> dict[str, int]:
    """Store what is new in ``page`` in one transaction; {group: last seq} of the jobs that grew. Raises ``CursorMoved``, ``LostRace``."""
    if not page.events:
        return {}
    with transaction.atomic():
        moved = EngineCursor.objects.filter(engine=page.engine, offset=after).update(
            offset=page.events[-1].offset, epoch=page.epoch, updated_at=now
        )
        if not moved:
            raise CursorMoved(f"{page.engine} is no longer at {after}")
        return {job.group: job.last_seq for job in _store_by_job(page, now)}


def _store_by_job(page: Page, now: datetime) -> list[Job]:
    by_job: dict[str, list[Event]] = defaultdict(list)
    for event in page.events:
        if event.job:
            by_job[event.job].append(event)
    jobs = {job.public_id: job for job in Job.objects.select_for_update().filter(public_id__in=by_job)}
    for unknown in by_job.keys() - jobs.keys():
        log.warning("events_of_unknown_job", job=unknown, count=len(by_job[unknown]))
    return [job for public_id, job in jobs.items() if _store_events(job, by_job[public_id], now)]


def _store_events(job: Job, events: list[Event], now: datetime) -> bool:
    """Rows, lifecycle and bill for the events after ``job.last_seq``; earlier ones are repeats. Whether there were any."""
    before = View.of(job)
    fresh = [event for event in events if event.seq > before.last_seq]
    if not fresh:
        return False
    _look_for_gaps(job, before.last_seq, fresh)
    view = before
    for event in fresh:
        view = _advance(job, view, event)
    rows = [JobEvent(tenant_id=job.tenant_id, job=job, seq=e.seq, kind=e.kind[:64], at=e.at, data=storable(e.data)) for e in fresh]
    JobEvent.objects.bulk_create(rows)
    lifecycle.write(job, before, view)
    series.keep(job, before.version)
    telling.tell(job, before.state, fresh[-1].at)
    charging.charge(job, rows, now)
    if any(event.kind == "step" for event in fresh):
        gate.after_step(job, now)
    return True


def _advance(job: Job, view: View, event: Event) -> View:
    """An illegal fact is logged and stored, and moves nothing: the stream must not stand still for one job."""
    fact = Fact(kind=event.kind, at=event.at, data=storable(event.data), seq=event.seq, engine=event.engine)
    try:
        return lifecycle.advance(view, fact)
    except IllegalTransition:
        log.error("illegal_transition", job=job.public_id, kind=event.kind, seq=event.seq, exc_info=True)
        return lifecycle.seen(view, fact)


def _look_for_gaps(job: Job, last: int, fresh: list[Event]) -> None:
    expected = list(range(last + 1, last + 1 + len(fresh)))
    if (found := [event.seq for event in fresh]) != expected:
        log.error("events_with_gap", job=job.public_id, after=last, found=found[:50])


def storable(value: Any) -> Any:
    """``value`` without what PostgreSQL's JSON refuses: NUL characters, lone surrogates, NaN and infinities (the latter become null)."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {storable(key): storable(inner) for key, inner in value.items()}
    return [storable(inner) for inner in value] if isinstance(value, list) else value
