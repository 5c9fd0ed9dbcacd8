"""The door to the completions of a job, by group: one step's, or the newest of all steps that match."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Path, Query

from engine.groups import Kept, Wanted

JobName = Annotated[str, Path(max_length=64)]
Count = Annotated[int | None, Query(ge=0)]
Reward = Annotated[float | None, Query(allow_inf_nan=False)]


class GroupsHandle(Protocol):
    async def groups(
        self, job: str, version: int | None, wanted: Wanted, *, every: bool, offset: int, limit: int, tokens: bool
    ) -> dict[str, Any]: ...
    async def row_versions(self, job: str, row: int) -> dict[str, Any]: ...


def group_routes(manager: GroupsHandle) -> APIRouter:
    routes = APIRouter(prefix="/jobs", tags=["jobs"])

    @routes.get("/{job}/groups", summary="Groups of completions of a step, or with `every` of all steps up to `version`, the newest first")
    async def groups(
        job: JobName,
        version: Count = None,
        every: bool = False,
        row: Count = None,
        sample: Count = None,
        reward_min: Reward = None,
        reward_max: Reward = None,
        length_min: Count = None,
        length_max: Count = None,
        finish: Annotated[str | None, Query(max_length=20)] = None,
        text: Annotated[str, Query(max_length=500)] = "",
        kept: Kept = "all",
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=100)] = 10,
        tokens: bool = False,
    ) -> dict[str, Any]:
        lengths = {"length_min": length_min, "length_max": length_max}
        rewards = {"reward_min": reward_min, "reward_max": reward_max}
        wanted = Wanted(row=row, sample=sample, finish=finish, text=text, kept=kept, **lengths, **rewards)
        return await manager.groups(job, version, wanted, every=every, offset=offset, limit=limit, tokens=tokens)

    @routes.get("/{job}/rows/{row}/versions", summary="The versions that a row of the dataset was sampled from")
    async def row_versions(job: JobName, row: Annotated[int, Path(ge=0)]) -> dict[str, Any]:
        return await manager.row_versions(job, row)

    return routes
