from __future__ import annotations

import asyncio
import signal
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand

from portal import metrics
from portal.gateway import async_engine
from portal.jobs.announce import announce_group
from portal.jobs.ingest import Ingester

log = structlog.get_logger(__name__)


class Command(BaseCommand):
    help = "Pull the engine's events into the database and wake the live pages. One process; SIGTERM ends it after the page in hand."

    def handle(self, **_: Any) -> None:
        if settings.ENV.metrics_port:
            metrics.serve(settings.ENV.metrics_port, settings.ENV.metrics_host)
        asyncio.run(_serve())


async def _serve() -> None:
    gateway = async_engine()
    task = asyncio.create_task(Ingester(gateway=gateway, announce=announce_group).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    log.info("ingester_started")
    try:
        await task
    except asyncio.CancelledError:
        log.info("ingester_stopped")
    finally:
        await gateway.close()
