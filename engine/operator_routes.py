"""The engine's HTTP door for the operators' console: everything at one look, and what would be if more jobs came."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Protocol

from fastapi import APIRouter

from engine.whatif import Question, answer


class OverviewHandle(Protocol):
    async def overview(self) -> dict[str, Any]: ...


def operator_routes(manager: OverviewHandle, profile: Path | None = None) -> APIRouter:
    """``profile``: where this machine's measured speeds lie, if they were measured."""
    routes = APIRouter(tags=["operators"])

    @routes.get("/overview", summary="Open jobs, queues in order, who is next and why not, shares, workers, memory")
    async def overview() -> dict[str, Any]:
        return await manager.overview()

    @routes.post("/whatif", summary="Play today's jobs and some more under a policy in virtual time; nothing is changed")
    async def whatif(question: Question) -> dict[str, Any]:
        # In this stateless process's thread: the manager's loop has jobs to run.
        return await asyncio.to_thread(answer, question, await manager.overview(), profile)

    return routes
