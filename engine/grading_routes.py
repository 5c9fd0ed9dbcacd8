"""The route of the Reward Lab. A call ends with its client: whoever goes away wants no grade any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Request

from engine.errors import NotReady
from engine.rewards.lab import Lab, LabOrder

T = TypeVar("T")


def grading_routes(lab: Lab) -> APIRouter:
    routes = APIRouter(prefix="/graders", tags=["graders"])

    @routes.post("/run", summary="Grade cases, or the adversarial corpus, with one grader; as many as there is time for")
    async def run(order: LabOrder, request: Request) -> dict[str, Any]:
        return await while_there(request, lab.run(order))

    @routes.post("/runs/{run}/stop", summary="Let go of what is graded for a run just now")
    async def stop(run: Annotated[str, Path(max_length=64)]) -> dict[str, bool]:
        return {"stopped": lab.stop(run)}

    return routes


async def while_there(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` gives; it is cancelled when the client goes away first."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise NotReady("the client has gone")
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
