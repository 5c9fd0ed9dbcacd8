"""Wake whoever watches a job. A hint that may be lost: sockets read the rows at their next ping anyway."""

from __future__ import annotations

import structlog
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

from portal.jobs import reach
from portal.jobs.models import Job

log = structlog.get_logger(__name__)


async def announce_group(group: str, seq: int) -> None:
    """Tell ``group`` that its job has reached ``seq``. Never raises."""
    try:
        await get_channel_layer().group_send(group, {"type": "job.events", "seq": seq})
    except Exception:  # whatever the channel layer's server does, the rows are stored
        log.warning("announcement_lost", group=group, seq=seq, exc_info=True)


async def announce_reach() -> None:
    """Tell every live page that an engine was lost or found. Never raises."""
    try:
        await get_channel_layer().group_send(reach.GROUP, {"type": "engine.reach"})
    except Exception:  # as above
        log.warning("announcement_lost", group=reach.GROUP, exc_info=True)


def announce(job: Job) -> None:
    async_to_sync(announce_group)(job.group, job.last_seq)
