"""The live socket of one job. A wake-up says only "there is more"; what is sent is read from the rows, so nothing is lost or doubled.

Server to client: ``{"type": "events", "events": […], "last": seq}`` and ``{"type": "ping", "last": seq, "engine_away_since": time,
"engine_restarting": {"part", "since"}}``: null as long as the job's engine can be reached, and as the part that the job needs next serves.
``?after=N`` resumes.
Closes with 4401 (not logged in), 4404 (no such job, or not yours: both alike), 4400 (bad ``after``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary

import structlog
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.contrib.auth import HASH_SESSION_KEY
from django.contrib.sessions.models import Session
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from portal import numbers
from portal.jobs import reach, standstill
from portal.jobs.feed import Feed
from portal.jobs.live import events_after
from portal.jobs.models import Job
from tenants import doors
from tenants.access import closed
from tenants.models import Tenant, User

log = structlog.get_logger(__name__)

NOT_LOGGED_IN, NOT_THERE, BAD_CURSOR = 4401, 4404, 4400

# (session, user) → the organisation that he looks at without being a member, if any.
Viewed = Callable[[Mapping[str, Any], User], Tenant | None]


class Nothing(AsyncJsonWebsocketConsumer):
    """For paths that there is no socket at: closed as one that is not there."""

    async def connect(self) -> None:
        await self.accept()  # a close before this reaches the browser without its code
        await self.close(NOT_THERE)


class JobConsumer(AsyncJsonWebsocketConsumer):
    ping_seconds = 15.0
    check_seconds = 60.0

    def __init__(self, *, viewed: Viewed):
        super().__init__()
        self._viewed = viewed

    async def connect(self) -> None:
        self.job: Job | None = None
        self.tail: asyncio.Task | None = None
        await self.accept()  # a close before this reaches the browser without its code
        user = self.scope["user"]
        if not user.is_authenticated:
            return await self.close(NOT_LOGGED_IN)
        after = _cursor(self.scope["query_string"])
        if after is None:
            return await self.close(BAD_CURSOR)
        self.job = await self._visible_job()
        if self.job is None:
            return await self.close(NOT_THERE)
        self.last = after
        self.more = asyncio.Event()
        self.looked = self.reach_changed = False
        await self.channel_layer.group_add(reach.GROUP, self.channel_name)
        await self.channel_layer.group_add(doors.group_of(user.pk), self.channel_name)
        await self.channel_layer.group_add(self.job.group, self.channel_name)  # before the first read: what comes in between wakes us
        self.tail = asyncio.create_task(self._follow())
        return None

    async def disconnect(self, code: int) -> None:
        if self.tail is not None:
            self.tail.cancel()
        if self.job is not None:
            await self.channel_layer.group_discard(reach.GROUP, self.channel_name)
            await self.channel_layer.group_discard(self.job.group, self.channel_name)
            await self.channel_layer.group_discard(doors.group_of(self.scope["user"].pk), self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **_: Any) -> None:
        """Nothing is asked over this socket; whatever a client sends is not even parsed."""

    async def job_events(self, message: dict[str, Any]) -> None:
        """A wake-up from the ingester."""
        if message.get("seq", 0) > self.last:
            self.more.set()

    async def engine_reach(self, message: dict[str, Any]) -> None:
        """Some engine was lost or found; the next ping says whether it is this job's."""
        self.reach_changed = True
        self.more.set()

    async def look_again(self, message: dict[str, Any]) -> None:
        """Something changed about this person: whether the socket may stay open is looked at now."""
        self.looked = True
        self.more.set()

    async def _follow(self) -> None:
        """Send rows until there are no more, then wait; each ping reads the rows too, in case a wake-up got lost."""
        loop = asyncio.get_running_loop()
        checked = loop.time()
        try:
            await self._reach()
            while True:
                if await self._send_rows() and self.part_out:
                    await self._ping()  # with another phase the job may need the other part
                if await self._idle() or self.reach_changed:
                    await self._ping()
                if self.looked or loop.time() - checked >= self.check_seconds:
                    self.looked, checked = False, loop.time()
                    if await self._visible_job() is None:
                        return await self.close(NOT_THERE)
        except Exception:
            log.exception("socket_failed", job=self.job.public_id)
            await self.close(1011)

    async def _send_rows(self) -> bool:
        """Whether there were any."""
        before = self.last
        while found := await _feed().after(self.job.pk, self.last):
            message, self.last = found
            await self.send(text_data=message)
        return self.last != before

    async def _ping(self) -> None:
        self.reach_changed = False
        await self.send_json({"type": "ping", "last": self.last, **await self._reach()})

    @database_sync_to_async
    def _reach(self) -> dict[str, Any]:
        """What a ping says of the engine; keeps whether a part of it is out, for then each new phase may change that."""
        away = reach.since(self.job)
        self.part_out = bool(reach.parts_out([self.job]))
        if self.part_out:
            self.job.refresh_from_db(fields=["state", "last_seq"])
        halt = standstill.of_job(self.job) if self.part_out else None
        return {"engine_away_since": away and away.isoformat(), "engine_restarting": halt and halt.as_json()}

    async def _idle(self) -> bool:
        """Wait for a wake-up; True when none came for ``ping_seconds``."""
        try:
            async with asyncio.timeout(self.ping_seconds):
                await self.more.wait()
        except TimeoutError:
            return True
        finally:
            self.more.clear()
        return False

    @database_sync_to_async
    def _visible_job(self) -> Job | None:
        """The job, if this person may see it now: active, with a session that still holds, and a member of its tenant, which is open, or an
        operator who looks at it.
        """
        user = User.objects.filter(pk=self.scope["user"].pk, is_active=True).first()
        session = None if user is None else standing_session(self.scope["session"].session_key, user)
        if user is None or session is None:
            return None
        jobs = Job.objects.select_related("tenant").filter(public_id=self.scope["url_route"]["kwargs"]["public_id"])
        if (viewed := self._viewed(session, user)) is not None and (job := jobs.filter(tenant=viewed).first()) is not None:
            return job
        job = jobs.filter(tenant__memberships__user=user).first()
        return None if job is None or closed(job.tenant, user) else job


def standing_session(session_key: str, user: User) -> dict[str, Any] | None:
    """What the session holds, if it is there and was not made under an earlier password."""
    session = Session.objects.filter(session_key=session_key, expire_date__gt=timezone.now()).first()
    held = session.get_decoded() if session else {}
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    holds = any([constant_time_compare(held.get(HASH_SESSION_KEY, ""), wanted) for wanted in hashes])
    return held if holds else None


_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, Feed] = WeakKeyDictionary()


def _feed() -> Feed:
    """This loop's reader, shared by all its sockets."""
    loop = asyncio.get_running_loop()
    if loop not in _feeds:
        _feeds[loop] = Feed(database_sync_to_async(events_after))
    return _feeds[loop]


def _cursor(query: bytes) -> int | None:
    return numbers.whole(parse_qs(query.decode("ascii", "replace")).get("after", ["0"])[0])
