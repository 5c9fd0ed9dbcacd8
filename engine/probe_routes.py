"""The engine's HTTP door to probes. ``POST`` with an id of the caller's: the same again is no error and answers where it stands."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Body, Path


class ProbesHandle(Protocol):
    async def probe(self, probe: str, raw: Any) -> dict[str, Any]: ...
    async def probe_state(self, probe: str) -> dict[str, Any]: ...
    async def cancel_probe(self, probe: str) -> dict[str, Any]: ...


ProbeName = Annotated[str, Path(max_length=64)]


def probe_routes(manager: ProbesHandle) -> APIRouter:
    routes = APIRouter(prefix="/probes", tags=["probes"])

    @routes.post("", status_code=202, summary="Let the base model try some rows of a job that is not started")
    async def start(body: Annotated[dict[str, Any], Body(description="probe: its id; and the fields of a ProbeOrder")]) -> dict[str, Any]:
        order = {name: value for name, value in body.items() if name != "probe"}
        return await manager.probe(str(body.get("probe", "")), order)

    @routes.get("/{probe}", summary="How far it is, and what came of it; forgotten when the manager starts anew")
    async def state(probe: ProbeName) -> dict[str, Any]:
        return await manager.probe_state(probe)

    @routes.post("/{probe}/cancel", summary="End it; one that has ended stays as it is")
    async def cancel(probe: ProbeName) -> dict[str, Any]:
        return await manager.cancel_probe(probe)

    return routes
