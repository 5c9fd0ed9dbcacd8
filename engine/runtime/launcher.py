"""Starts the engine, says how far it is, and stops all that it started.

Progress goes to stdout as JSON lines: ``{"stage": …}`` while it starts, then ``{"ready": true, "url": …, "seconds": …}``. The launcher is
not in the way of any work: once the engine is up it only waits, for a signal or for the death of a Ray daemon.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import sys
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Callable
from typing import Any

from engine import device
from engine.models import registry
from engine.runtime import process, reaper, run_file
from engine.runtime.names import Factories
from engine.runtime.readiness import StartFailed
from engine.runtime.sandbox_check import strength_at_start
from engine.settings import REPOSITORY, EngineSettings

logger = logging.getLogger(__name__)

STOP_SECONDS = 10.0
STAGE_WAIT_SECONDS = 10.0


def say(**line: Any) -> None:
    print(json.dumps(line, ensure_ascii=False), flush=True)


def serve(settings: EngineSettings, *, factories: Factories | None = None, report: Callable[..., None] = say) -> int:
    """Run the engine until SIGTERM or SIGINT. Exit code: 0 after a signal, 1 when it could not start or Ray died."""
    settings.make_dirs()
    device.let_other_sessions_go_first(settings.niceness)
    process.log_beside_stdout(settings.log_dir / "engine-launcher.log", as_json=settings.logs_are_json)
    try:
        with run_file.only_one(settings):
            return _run(Launcher(settings, factories or Factories(), report))
    except StartFailed as error:
        report(failed=str(error))
    except Exception as error:  # Ray raises whatever comes to it; whoever started us reads only these lines
        logger.exception("the engine stops by an error of its own")
        report(failed=f"{type(error).__name__}: {error} (logs: {settings.log_dir})")
    return 1


def _run(launcher: Launcher) -> int:
    try:
        return asyncio.run(launcher.run())
    finally:
        launcher.stop()


class Launcher:
    """``run`` on the main thread: Ray's daemons are tied to the thread that starts them."""

    def __init__(self, settings: EngineSettings, factories: Factories, report: Callable[..., None]):
        self._settings = settings
        self._factories = factories
        self._report = report
        self._tag = secrets.token_hex(8)
        self._reaper = reaper.start(self._tag)
        run_file.write(settings, self._tag)
        self._ray: Any = None
        self._actors: Any = None

    async def run(self) -> int:
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        self._listen(ended)
        starting = asyncio.ensure_future(self._start(ended))
        await asyncio.wait([starting, ended], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            starting.cancel()
            return ended.result()
        starting.result()
        self._report(ready=True, url=self._settings.engine_url, seconds=round(time.monotonic() - began, 1))
        gone = asyncio.ensure_future(self._actors.until_gone())
        gone.add_done_callback(lambda done: done.cancelled() or self._end(ended, 1, done.result()))
        try:
            return await ended
        finally:
            gone.cancel()

    async def _start(self, ended: asyncio.Future[int]) -> None:
        """Raises ``StartFailed``."""
        trying = asyncio.ensure_future(strength_at_start(self._settings))
        try:
            await self._fetch_model()
            self._report(stage="starting Ray…")
            self._start_ray(ended)
            self._listen(ended)  # again: Ray has put a handler of its own in the place of ours, one that leaves its actors behind
            await self._actors.reserve(self._tag, lambda what: self._report(stage=what))
            self._report(stage="trying the reward sandbox…")
            self._actors.create(await trying)
        finally:
            trying.cancel()
        await self._until_ready()

    async def _fetch_model(self) -> None:
        """Once, before several processes want it. In a process of its own: converting weights takes torch and much memory."""
        settings = self._settings
        if registry.is_fetched(settings.model, settings.models_dir):
            return
        self._report(stage=f"fetching {settings.model}…")
        command = (sys.executable, "-m", "engine.models", "fetch", settings.model, "--models-dir", str(settings.models_dir))
        environment = {**os.environ, reaper.TAG_VARIABLE: self._tag}
        child = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, env=environment, stdout=PIPE, stderr=STDOUT)
        output, _ = await child.communicate()
        if child.returncode:
            raise StartFailed(output.decode(errors="replace").strip() or f"fetching {settings.model} failed")

    def _start_ray(self, ended: asyncio.Future[int]) -> None:
        from engine.runtime.actors import Actors
        from engine.runtime.local_ray import JoinedRay, start_or_join

        self._ray = start_or_join(self._settings, self._tag)
        self._actors = Actors(self._settings, self._factories, joined=isinstance(self._ray, JoinedRay))
        process.watch(self._ray.process_ids(), lambda pid: self._end(ended, 1, f"Ray's process {pid} died"))

    def _listen(self, ended: asyncio.Future[int]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, ended, 0, f"received {signal.Signals(number).name}")

    def _end(self, ended: asyncio.Future[int], code: int, why: str) -> None:
        logger.info("%s: the engine stops", why)
        if not ended.done():
            ended.set_result(code)

    async def _until_ready(self) -> None:
        """Report each stage as it comes; raises ``StartFailed``."""
        deadline = time.monotonic() + self._settings.start_deadline_seconds
        revision, told = 0, ""
        while time.monotonic() < deadline:
            health = await self._actors.next_health(revision, wait_seconds=STAGE_WAIT_SECONDS)
            revision = health.revision
            if health.ok:
                await self._actors.http_ready(self._settings.call_deadline_seconds)
                return
            if health.failure:
                raise StartFailed(f"{health.failure} (logs: {self._settings.log_dir})")
            if health.stage != told:
                told = health.stage
                self._report(stage=told)
        raise StartFailed(f"not ready after {self._settings.start_deadline_seconds:g} s: {told} (logs: {self._settings.log_dir})")

    def stop(self) -> None:
        """Leave nothing: actors, Ray's daemons, and whatever still carries the run's tag."""
        if self._actors is not None:
            self._actors.kill()
        if self._ray is not None:
            self._ray.stop()
        left = reaper.sweep(self._tag, deadline_seconds=STOP_SECONDS, spare=(os.getpid(), self._reaper.pid))
        if left:
            logger.error("processes %s did not end", left)
        self._reaper.communicate()
        run_file.remove(self._settings)
        sys.stdout.flush()
