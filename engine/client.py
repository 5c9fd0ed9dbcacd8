"""A small asynchronous client of the engine's HTTP door, for the demo, the bench and tests. The portal has its own gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from engine.spec import JobSpec, Submission

WAIT_SECONDS = 20.0
CALL_SECONDS = 90.0


class EngineClient:
    """Raises ``httpx.HTTPStatusError`` for refusals. Use as an async context manager."""

    def __init__(self, url: str, secret: str):
        self._http = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=CALL_SECONDS)

    async def __aenter__(self) -> EngineClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def healthy(self) -> bool:
        """Whether manager, sampler and trainer are ready; False also when nothing answers."""
        try:
            return (await self._http.get("/healthz")).status_code == 200
        except httpx.TransportError:
            return False

    async def health(self) -> dict[str, Any]:
        return (await self._http.get("/healthz")).json()

    async def submit(self, job: str, submission: Submission) -> dict[str, Any]:
        return _checked(await self._http.put(f"/jobs/{job}", json=submission.model_dump(mode="json")))

    async def cancel(self, job: str) -> dict[str, Any]:
        return _checked(await self._http.post(f"/jobs/{job}/cancel"))

    async def delete(self, job: str) -> dict[str, Any]:
        """Remove the files of an ended job."""
        return _checked(await self._http.delete(f"/jobs/{job}"))

    async def set_policy(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Change fields of the scheduling policy; answers the whole of it."""
        return _checked(await self._http.patch("/policy", json=changes))

    async def evaluation(self, job: str, version: int | str = "latest", *, against: int = 0, limit: int = 1000) -> dict[str, Any]:
        """What an evaluated version made of each held-out row, beside what another made of it."""
        return _checked(await self._http.get(f"/jobs/{job}/evaluations/{version}", params={"against": against, "limit": limit}))

    async def status(self) -> dict[str, Any]:
        return _checked(await self._http.get("/status"))

    async def model(self) -> dict[str, Any]:
        return _checked(await self._http.get("/models"))["models"][0]

    async def adapter(self, job: str, version: int | str = "latest") -> bytes:
        """A zip of PEFT's directory."""
        answer = await self._http.get(f"/jobs/{job}/adapters/{version}")
        answer.raise_for_status()
        return answer.content

    async def rollouts(self, job: str, version: int, *, offset: int = 0, limit: int = 1000) -> dict[str, Any]:
        """A page of what ``job`` sampled from ``version``."""
        parameters = {"version": version, "offset": offset, "limit": limit}
        return _checked(await self._http.get(f"/jobs/{job}/rollouts", params=parameters))

    async def probe(self, probe: str, *, tenant: str, spec: JobSpec, rows: int) -> dict[str, Any]:
        """Let the base model try ``rows`` rows; the same again answers how far it is."""
        body = {"probe": probe, "tenant": tenant, "spec": spec.model_dump(mode="json"), "rows": rows}
        return _checked(await self._http.post("/probes", json=body))

    async def probe_state(self, probe: str) -> dict[str, Any]:
        return _checked(await self._http.get(f"/probes/{probe}"))

    @asynccontextmanager
    async def generate(self, **order: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The lines of a ``ChatOrder``'s answer; leaving the block ends it."""
        async with self._http.stream("POST", "/generate", json=order) as answer:
            if answer.is_error:
                await answer.aread()
                answer.raise_for_status()
            yield (json.loads(line) async for line in answer.aiter_lines())

    async def events(self, after: int, *, wait_seconds: float = WAIT_SECONDS, limit: int = 1000) -> dict[str, Any]:
        return _checked(await self._http.get("/events", params={"after": after, "wait": wait_seconds, "limit": limit}))

    async def last_offset(self) -> int:
        """The cursor behind everything that has happened so far."""
        offset = 0
        while (page := await self.events(offset, wait_seconds=0))["events"]:
            offset = page["last"]
        return offset

    async def follow(self, jobs: Iterable[str], *, after: int) -> AsyncIterator[dict[str, Any]]:
        """Every event of ``jobs`` behind ``after``, until all of them have ended. Survives an engine that does not answer for a while."""
        open_jobs = wanted = set(jobs)
        while open_jobs:
            try:
                page = await self.events(after)
            except (httpx.TransportError, httpx.HTTPStatusError) as error:
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code != 503:
                    raise
                continue
            after = page["last"]
            for event in page["events"]:
                if event["job"] in wanted:
                    yield event
                    open_jobs = open_jobs - {event["job"]} if event["kind"] == "ended" else open_jobs


def _checked(answer: httpx.Response) -> dict[str, Any]:
    if answer.is_error:
        raise httpx.HTTPStatusError(f"{answer.status_code}: {answer.text}", request=answer.request, response=answer)
    return answer.json()
