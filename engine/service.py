"""The engine's HTTP door: stateless, one coroutine per route, each a translation to one method of a ``ManagerHandle``.

Any number of these may stand in front of one manager. All state, all checks of meaning and all waiting are behind the handle.
"""

from __future__ import annotations

import asyncio
import io
import logging
import zipfile
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Body, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from engine import exposition
from engine.access_log import AccessLog
from engine.errors import EngineError, Invalid, NotFound
from engine.gate import Gate
from engine.grading_routes import grading_routes
from engine.group_routes import GroupsHandle, group_routes
from engine.operator_routes import operator_routes
from engine.probe_routes import ProbesHandle, probe_routes
from engine.rewards.lab import Lab
from engine.serving import Serving
from engine.serving_routes import serving_routes
from engine.spec import JobSpec, Submission

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 1 << 20
MAX_WAIT_SECONDS = 30.0


class ManagerHandle(ProbesHandle, GroupsHandle, Protocol):
    """What the door needs of a manager, wherever it lives. Refusals are raised as ``EngineError`` itself, not wrapped."""

    async def health(self) -> dict[str, Any]: ...
    async def submit(self, job: str, raw: Any) -> dict[str, Any]: ...
    async def cancel(self, job: str, reason: str = "") -> dict[str, str]: ...
    async def pause(self, job: str, reason: str = "") -> dict[str, str]: ...
    async def resume(self, job: str, reason: str = "") -> dict[str, str]: ...
    async def reprioritise(self, job: str, priority: int) -> dict[str, Any]: ...
    async def delete(self, job: str) -> dict[str, str]: ...
    async def delete_version(self, job: str, version: int) -> dict[str, Any]: ...
    async def delete_completions(self, job: str) -> dict[str, str]: ...
    async def set_admission(self, mode: str) -> dict[str, str]: ...
    async def set_policy(self, changes: dict[str, Any]) -> dict[str, Any]: ...
    async def status(self) -> dict[str, Any]: ...
    async def overview(self) -> dict[str, Any]: ...
    async def events(self, after: int, wait_seconds: float, limit: int) -> dict[str, Any]: ...
    async def adapter(self, job: str, version: int | None) -> tuple[int, dict[str, bytes]]: ...
    async def rollouts(self, job: str, version: int | None, *, offset: int, limit: int) -> dict[str, Any]: ...
    async def evaluation(
        self, job: str, version: int | None, *, against: int, change: str | None, offset: int, limit: int
    ) -> dict[str, Any]: ...
    async def models(self) -> dict[str, Any]: ...
    async def tokenizer(self, model: str) -> bytes: ...
    async def estimate(self, raw: Any) -> dict[str, Any]: ...


class Order(BaseModel):
    """The optional body of cancel, pause and resume."""

    model_config = ConfigDict(extra="forbid")
    reason: Annotated[str, Field(max_length=1000)] = ""


class Change(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    priority: Annotated[int, Field(ge=-100, le=100)]


JobName = Annotated[str, Path(max_length=64)]
Count = Annotated[int, Query(ge=0)]
Limit = Annotated[int, Query(ge=1, le=1000)]


def create_app(
    manager: ManagerHandle,
    secret: str,
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    metrics_token: str = "",
    lab: Lab | None = None,
    serving: Serving | None = None,
    profile: FilePath | None = None,
) -> FastAPI:
    """The ASGI application. ``secret``: the bearer token that every request but ``GET /healthz`` must carry.

    ``metrics_token``: see ``Gate``. ``lab``: what grades without a job, ``serving``: what chats; None: this door does not. ``profile``: the
    machine's measured speeds, for what-if questions.
    """
    app = FastAPI(title="MARLaaS engine", version="1", docs_url=None, redoc_url=None)
    app.include_router(job_routes(manager))
    app.include_router(group_routes(manager))
    app.include_router(engine_routes(manager))
    app.include_router(probe_routes(manager))
    app.include_router(operator_routes(manager, profile))
    if lab is not None:
        app.include_router(grading_routes(lab))
    if serving is not None:
        app.include_router(serving_routes(serving))
    app.add_middleware(AccessLog)
    app.add_middleware(Gate, secret=secret, max_body_bytes=max_body_bytes, metrics_token=metrics_token)
    app.add_exception_handler(EngineError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(Exception, _broken)
    return app


def job_routes(manager: ManagerHandle) -> APIRouter:
    routes = APIRouter(prefix="/jobs", tags=["jobs"])

    @routes.put("/{job}", summary="Submit a job; the same again is no error")
    async def submit(job: JobName, submission: Submission) -> dict[str, Any]:
        return await manager.submit(job, submission.model_dump(mode="json"))

    @routes.post("/{job}/{order}", status_code=202, summary="Cancel, pause or resume an open job")
    async def command(job: JobName, order: Literal["cancel", "pause", "resume"], body: Order | None = None) -> dict[str, str]:
        return await getattr(manager, order)(job, (body or Order()).reason)

    @routes.patch("/{job}", summary="Change an open job's priority")
    async def change(job: JobName, body: Change) -> dict[str, Any]:
        return await manager.reprioritise(job, body.priority)

    @routes.delete("/{job}", summary="Remove an ended job's versions and batches")
    async def delete(job: JobName) -> dict[str, str]:
        return await manager.delete(job)

    @routes.get("/{job}/adapters/{version}", response_class=Response, summary="A committed version as a zip of PEFT's directory")
    async def adapter(job: JobName, version: str) -> Response:
        number, files = await manager.adapter(job, _version(version))
        archive = await asyncio.to_thread(zipped, files)
        headers = {"X-Policy-Version": str(number), "Content-Disposition": f'attachment; filename="{job}-v{number}.zip"'}
        return Response(archive, media_type="application/zip", headers=headers)

    @routes.delete("/{job}/adapters/{version}", summary="Remove one version of an ended job for good")
    async def delete_version(job: JobName, version: str) -> dict[str, Any]:
        number = _version(version)
        if number is None:
            raise NotFound("name the version to delete by its number", code="version_not_found", param="version")
        return await manager.delete_version(job, number)

    @routes.delete("/{job}/completions", summary="Remove what an ended job sampled, in its steps and evaluations; its versions stay")
    async def delete_completions(job: JobName) -> dict[str, str]:
        return await manager.delete_completions(job)

    @routes.get("/{job}/rollouts", summary="The completions sampled from a version, a page at a time")
    async def rollouts(
        job: JobName,
        version: Annotated[int | None, Query(ge=0)] = None,
        offset: Count = 0,
        limit: Limit = 100,
    ) -> dict[str, Any]:
        return await manager.rollouts(job, version, offset=offset, limit=limit)

    @routes.get("/{job}/evaluations/{version}", summary="An evaluated version against another, row by row")
    async def evaluation(
        job: JobName,
        version: str,
        against: Count = 0,
        change: Literal["win", "loss", "tie", "invalid"] | None = None,
        offset: Count = 0,
        limit: Limit = 100,
    ) -> dict[str, Any]:
        return await manager.evaluation(job, _version(version), against=against, change=change, offset=offset, limit=limit)

    return routes


def engine_routes(manager: ManagerHandle) -> APIRouter:
    routes = APIRouter(tags=["engine"])

    @routes.get("/healthz", summary="Whether manager, sampler and trainer are ready; needs no secret")
    async def healthz() -> JSONResponse:
        health = await _health(manager)
        return JSONResponse(health, status_code=200 if health["ok"] else 503)

    @routes.get("/events", summary="Events behind a cursor; waits for the first when there is none yet")
    async def events(
        after: Count = 0,
        wait: Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="seconds")] = 0,
        limit: Limit = 500,
    ) -> dict[str, Any]:
        return await manager.events(after, wait, limit)

    @routes.get("/status", summary="Every job, the queue's order, memory and slots, the sampler's counters")
    async def status() -> dict[str, Any]:
        return await manager.status()

    @routes.get("/models", summary="The base models served here, with their limits")
    async def models() -> dict[str, Any]:
        return await manager.models()

    @routes.get("/models/{name:path}/tokenizer", response_class=Response, summary="The model's tokenizer.json")
    async def tokenizer(name: str) -> Response:
        return Response(await manager.tokenizer(name), media_type="application/json")

    @routes.post("/estimate", summary="What a job would take, and what stands against it")
    async def estimate(spec: JobSpec) -> dict[str, Any]:
        return await manager.estimate(spec.model_dump(mode="json"))

    @routes.post("/admission/{mode}", summary="Open, pause or drain")
    async def admission(mode: Literal["open", "pause", "drain"]) -> dict[str, str]:
        return await manager.set_admission(mode)

    @routes.patch("/policy", summary="Change the scheduling policy of the running engine")
    async def policy(changes: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        return await manager.set_policy(changes)

    @routes.get("/metrics", response_class=PlainTextResponse, summary="The status for Prometheus")
    async def metrics() -> Response:
        return Response(exposition.prometheus(await manager.status()), media_type=exposition.CONTENT_TYPE)

    return routes


def zipped(files: dict[str, bytes]) -> bytes:
    """An uncompressed archive (weights do not compress) whose bytes depend on ``files`` alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def _version(text: str) -> int | None:
    if text == "latest":
        return None
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise NotFound(f"{text!r} is no version; use a number or `latest`", code="version_not_found", param="version")


async def _health(manager: ManagerHandle) -> dict[str, Any]:
    try:
        return await manager.health()
    except Exception:
        logger.exception("the manager does not answer")
        return {"ok": False, "stage": "waiting for the manager"}


async def _refused(request: Request, error: EngineError) -> JSONResponse:
    return JSONResponse(error.body(), status_code=error.status)


async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    return await _refused(request, Invalid.of([(_field(problem["loc"]), _words(problem)) for problem in error.errors()]))


async def _no_route(request: Request, error: HTTPException) -> JSONResponse:
    refusal = EngineError(str(error.detail), code="not_found" if error.status_code == 404 else "bad_request")
    return JSONResponse(refusal.body(), status_code=error.status_code, headers=error.headers)


async def _broken(request: Request, error: Exception) -> JSONResponse:
    # Starlette logs the traceback and hands it to the server; the client learns only that it was not his fault.
    return JSONResponse(EngineError("the engine failed to answer; its log says why", code="internal").body(), status_code=500)


def _field(location: tuple[int | str, ...]) -> str:
    inside = location[1:] if location and location[0] in ("body", "query", "path") else location
    return ".".join(str(part) for part in inside) or "body"


def _words(problem: dict[str, Any]) -> str:
    return str(problem["msg"]).removeprefix("Value error, ")
