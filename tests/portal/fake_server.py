"""The fake engine as a server of its own that plays jobs, for work on pages without torch, vLLM or Ray.

What the Reward Lab asks is no play: the engine's own Lab answers, with the real sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from datetime import UTC, datetime
from typing import Any

import httpx
import uvicorn

from engine.rewards.lab import Lab
from engine.rewards.pool import GraderPool
from engine.rewards.sandbox import Sandbox, SandboxSettings
from tests.portal import fake_script
from tests.portal.fake_engine import FakeEngine, graded


class Player:
    """Plays each job as a task of its own, ``slots`` at a time; events wake the long polls."""

    def __init__(self, engine: FakeEngine, *, speed: float, slots: int):
        self.engine, self.speed = engine, speed
        self.grown = asyncio.Condition()
        self._slots = asyncio.Semaphore(slots)
        self._tasks: dict[str, asyncio.Task] = {}

    async def start_new(self) -> None:
        for job in self.engine.jobs.keys() - self._tasks.keys():
            self._tasks[job] = asyncio.create_task(self._play(job))
        await self.tell()

    async def tell(self) -> None:
        async with self.grown:
            self.grown.notify_all()

    async def _emit(self, job: str, kind: str, **data: Any) -> None:
        self.engine.emit(job, kind, **data)
        await self.tell()

    async def _play(self, job: str) -> None:
        spec = self.engine.jobs[job]["spec"]
        if self._slots.locked():
            await self._emit(job, "waiting", reason="All 2 places are taken; it starts when a job ends", code="slots", position=1)
        async with self._slots:
            await self._emit(job, "admitted", slots_used=1, kv_reserved_bytes=1 << 24)
            await self._emit(job, "eval", **fake_script.eval_event(job, spec, 0))
            for version in range(spec["train"]["steps"]):
                if await self._interrupted(job, version):
                    return
                await self._play_step(job, spec, version)
            await self._emit(job, "eval", **fake_script.eval_event(job, spec, spec["train"]["steps"]))
            await self._end(job, "succeeded", "All steps are done", spec["train"]["steps"])

    async def _play_step(self, job: str, spec: dict[str, Any], version: int) -> None:
        for seconds, kind, data in fake_script.step_events(job, spec, version, datetime.now(UTC).timestamp()):
            await asyncio.sleep(seconds / self.speed)
            await self._emit(job, kind, **data)
        if version == 3:
            await self._emit(job, "finding", **fake_script.finding(version))

    async def _interrupted(self, job: str, version: int) -> bool:
        """Whether the job was cancelled; holds while it is paused."""
        if self._last(job, "pause_requested", "resumed", "stop_requested") == "pause_requested":
            await self._emit(job, "paused", version=version)
            async with self.grown:
                await self.grown.wait_for(lambda: self._last(job, "paused", "resumed", "stop_requested") != "paused")
        if self._last(job, "stop_requested") is None:
            return False
        await self._end(job, "cancelled", "Cancelled on request", version)
        return True

    async def _end(self, job: str, state: str, reason: str, version: int) -> None:
        figures = {"ttfs_seconds": 2.1, "tpts_seconds": 1.3, "completion_seconds": 40.0}
        await self._emit(job, "ended", state=state, reason=reason, attribution="user", version=version, **figures)

    def _last(self, job: str, *kinds: str) -> str | None:
        return next((e["kind"] for e in reversed(self.engine.journal) if e["job"] == job and e["kind"] in kinds), None)


def application(engine: FakeEngine, player: Player, lab: Lab) -> Any:
    """The fake as a bare ASGI application; ``GET /events`` waits until there is something."""

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = await _request(scope, receive)
        if request.url.path == "/events":
            await _wait(engine, player, int(request.url.params["after"]), float(request.url.params.get("wait", 0)))
        response = await _of_lab(lab, request) or engine.handle(request)
        await player.start_new()
        headers = [(key.lower(), value) for key, value in response.headers.raw]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        async for part in response.aiter_bytes():  # a chat comes line by line
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


async def _of_lab(lab: Lab, request: httpx.Request) -> httpx.Response | None:
    """What the real Lab answers; None for all other paths."""
    if request.url.path == "/graders/run":
        return await graded(lab, json.loads(request.content))
    if match := re.fullmatch(r"/graders/runs/([^/]+)/stop", request.url.path):
        return httpx.Response(200, json={"stopped": lab.stop(match[1])})
    return None


async def _request(scope: dict[str, Any], receive: Any) -> httpx.Request:
    body = b""
    while (message := await receive()).get("more_body"):
        body += message["body"]
    url = f"http://engine{scope['path']}?{scope['query_string'].decode()}"
    return httpx.Request(scope["method"], url, headers=scope["headers"], content=body + message.get("body", b""))


async def _wait(engine: FakeEngine, player: Player, after: int, seconds: float) -> None:
    async with player.grown:
        try:
            await asyncio.wait_for(player.grown.wait_for(lambda: len(engine.journal) > after), seconds)
        except TimeoutError:
            return


async def _serve(port: int, secret: str, speed: float, slots: int, model: str) -> None:
    engine = FakeEngine(secret=secret, clock=lambda: datetime.now(UTC))
    engine.models = [engine.models[0].model_copy(update={"name": model})]
    lab = Lab(lambda: GraderPool(sandbox=Sandbox(SandboxSettings(spares=1, max_workers=4))))
    config = uvicorn.Config(
        application(engine, Player(engine, speed=speed, slots=slots), lab),
        port=port,
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    try:
        await uvicorn.Server(config).serve()
    finally:
        await lab.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8801)
    parser.add_argument("--secret", default="test-secret", help="what the portal has in MARLAAS_ENGINE_SECRET")
    parser.add_argument("--speed", type=float, default=1.0, help="2 plays twice as fast")
    parser.add_argument("--slots", type=int, default=2, help="jobs that run at once")
    parser.add_argument("--model", default="tiny-math", help="what it says that it serves")
    given = parser.parse_args()
    asyncio.run(_serve(given.port, given.secret, given.speed, given.slots, given.model))
