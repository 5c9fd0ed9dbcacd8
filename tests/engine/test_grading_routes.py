from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from engine.rewards.lab import Lab, LabOrder
from engine.rewards.pool import GraderPool
from engine.service import create_app

pytestmark = pytest.mark.asyncio
ORDER = {"tenant": "org", "grader": {"type": "numeric"}, "cases": [{"sample": {"output_text": "7"}, "item": {"answer": "7"}}]}


def app_of(lab: Any) -> Any:
    return create_app(object(), "secret", lab=lab)


async def post(lab: Any, body: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app_of(lab)), base_url="http://engine") as client:
        return await client.post("/graders/run", json=body, headers={"Authorization": "Bearer secret"})


async def test_cases_are_graded_over_http():
    answer = (await post(Lab(GraderPool), ORDER)).json()
    assert (answer["total"], answer["results"][0]["outcomes"][0]["reward"]) == (1, 1.0)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"grader": {"type": "numeric", "speed": 1}}, "grader.speed"),
        ({"repeats": 6}, "repeats"),
        ({"cases": [{}] * 501}, "cases"),
        ({"case_seconds": 3600}, "case_seconds"),
        ({"tenant": ""}, "tenant"),
    ],
)
async def test_a_bad_order_is_refused_with_its_field(change: dict[str, Any], field: str):
    refused = await post(Lab(GraderPool), {**ORDER, **change})
    assert refused.status_code == 422
    assert refused.json()["error"]["problems"][0]["field"].startswith(field)


class Endless:
    """A Lab whose order never ends by itself."""

    def __init__(self) -> None:
        self.began, self.ended = asyncio.Event(), asyncio.Event()

    async def run(self, order: LabOrder) -> dict[str, Any]:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return {}


async def test_the_work_ends_with_its_client():
    lab = Endless()
    body = json.dumps(ORDER).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {"type": "http", "method": "POST", "path": "/graders/run", "raw_path": b"/graders/run", "query_string": b"", "asgi": {}}
    scope["headers"] = [(b"authorization", b"Bearer secret"), (b"content-type", b"application/json")]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await lab.began.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None: ...

    async with asyncio.timeout(10):
        await app_of(lab)(scope, receive, send)
    assert lab.ended.is_set()
