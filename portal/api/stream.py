"""A job's events as server-sent events: numbered rows, so that ``Last-Event-ID`` resumes without gap or double.

What is sent is read from the rows; the channel layer only says that there are more, or that the caller's right to listen may have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from django.utils import timezone
from rest_framework.renderers import JSONRenderer

from portal.api.auth import tenant_of
from portal.jobs.consumers import standing_session
from portal.jobs.live import events_after
from portal.jobs.models import Job
from tenants import doors, tokens
from tenants.access import closed
from tenants.models import Membership, Tenant

PING_SECONDS = 15.0
CHECK_SECONDS = 60.0
RETRY_MS = 2000


class EventStream(JSONRenderer):
    """Lets ``Accept: text/event-stream`` in; a refusal is JSON all the same."""

    media_type = "text/event-stream"
    format = "sse"


def right_to_listen(request: Any) -> Callable[[], bool]:
    """Whether this caller may go on listening, asked again while the stream is open."""
    tenant_pk, user = tenant_of(request).pk, request.user
    token_pk = request.auth.token.pk if isinstance(request.auth, tokens.Access) else None
    session_key = None if token_pk else request._request.session.session_key

    def may() -> bool:
        tenant = Tenant.objects.filter(pk=tenant_pk, deleted_at=None).first()
        if tenant is None or not Membership.objects.filter(tenant=tenant, user=user, user__is_active=True).exists():
            return False
        if token_pk:
            live = tokens.is_live(token_pk, timezone.now())
        else:
            live = standing_session(session_key, type(user).objects.get(pk=user.pk)) is not None
        return live and closed(tenant, user) is None

    return may


async def frames(
    job: Job, after: int, user_pk: int, may: Callable[[], bool], *, ping_seconds: float = PING_SECONDS
) -> AsyncIterator[bytes]:
    """Every event after ``after``, then each as it comes, until the job has ended or ``may`` says no."""
    layer = get_channel_layer()
    channel = await layer.new_channel("stream")
    groups = (job.group, doors.group_of(user_pk))
    for group in groups:
        await layer.group_add(group, channel)  # before the first read: what comes in between wakes us
    loop = asyncio.get_running_loop()
    checked, over = loop.time(), not job.is_open
    try:
        yield f"retry: {RETRY_MS}\n\n".encode()
        while True:
            while rows := await _rows(job.pk, after):
                for row in rows:
                    yield _frame(row)
                after = rows[-1]["seq"]
                over = over or any(row["kind"] == "ended" for row in rows)
            if over:  # with what is told of a job after its end, as that a version was deleted
                return
            kind = await _wake(layer, channel, ping_seconds)
            if kind is None:
                yield b": still here\n\n"
            if kind == "look.again" or loop.time() - checked >= CHECK_SECONDS:
                checked = loop.time()
                if not await database_sync_to_async(may)():
                    yield b'event: closed\ndata: {"reason": "your right to listen has ended"}\n\n'
                    return
    finally:
        for group in groups:
            await layer.group_discard(group, channel)


async def _wake(layer: Any, channel: str, seconds: float) -> str | None:
    """What came, or None when nothing did for so long."""
    try:
        async with asyncio.timeout(seconds):
            return (await layer.receive(channel))["type"]
    except TimeoutError:
        return None


@database_sync_to_async
def _rows(job_pk: int, after: int) -> list[dict[str, Any]]:
    return events_after(job_pk, after)


def _frame(row: dict[str, Any]) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (row["seq"], msgspec.json.encode(row))
