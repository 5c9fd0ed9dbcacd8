from __future__ import annotations

import asyncio
import signal
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand

from portal import gateway, metrics, tracing
from portal.jobs.announce import announce_group, announce_reach
from portal.jobs.ingest import Ingester
from portal.jobs.parts import PartsWatch

log = structlog.get_logger(__name__)


class Command(BaseCommand):
    help = "Pull the engines' events into the database and wake the live pages. One process; SIGTERM ends it after the page in hand."

    def handle(self, **_: Any) -> None:
        if settings.ENV.metrics_port:
            metrics.serve(settings.ENV.metrics_port, settings.ENV.metrics_host)
        tracing.start("ingester")
        try:
            asyncio.run(_serve())
        finally:
            tracing.stop()


async def _serve() -> None:
    doors = {name: gateway.async_engine(name) for name in gateway.names()}
    tell = {"announce": announce_group, "announce_reach": announce_reach}
    ingesters = [Ingester(gateway=door, name=name, **tell) for name, door in doors.items()]
    watches = [PartsWatch(gateway=door, name=name, announce_reach=announce_reach) for name, door in doors.items()]
    task = asyncio.ensure_future(asyncio.gather(*(part.run() for part in (*ingesters, *watches))))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    log.info("ingester_started")
    try:
        await task
    except asyncio.CancelledError:
        log.info("ingester_stopped")
    finally:
        await asyncio.gather(*(door.close() for door in doors.values()))
