from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from engine.chat_spec import ChatOrder
from engine.errors import Conflict, Invalid, NotFound, NotReady
from engine.ports import PortError, Snapshot, TooMany
from engine.service import create_app
from engine.serving import Chat, Serving

pytestmark = pytest.mark.asyncio
HELLO = [{"role": "user", "content": "6*7="}]
BEGIN = {"type": "begin", "prompt_tokens": 4}
USAGE = {"type": "usage", "prompt_tokens": 4, "cached_tokens": 0, "completion_tokens": 2}


class FakeManager:
    def __init__(self, head: int = 3):
        self.head = head
        self.read: list[tuple[str, int | None]] = []

    async def servable(self, tenant: str, job: str, version: int | None) -> int:
        wanted = self.head if version is None else version
        if (tenant, job) != ("alice", "job_a") or wanted > self.head:
            raise NotFound("there is no such version")
        return wanted

    async def adapter(self, job: str, version: int | None) -> tuple[int, Snapshot]:
        self.read.append((job, version))
        return version or 0, {"adapter_config.json": b"{}"}


class FakeReplica:
    """Answers ``pages`` one by one, and then waits for ever."""

    def __init__(self, *pages: list[dict[str, Any]], holds: bool = False, refuses: PortError | None = None):
        self.pages, self.holds, self.refuses = list(pages), holds, refuses
        self.opened: list[tuple[str, int | None, bool]] = []
        self.closed: list[str] = []
        self.reading = asyncio.Event()

    async def open(self, chat: str, order: dict[str, Any], version: int | None, files: Snapshot | None) -> bool:
        self.opened.append((chat, version, files is not None))
        if self.refuses:
            raise self.refuses
        return version is None or self.holds or files is not None

    async def read(self, chat: str) -> dict[str, Any]:
        self.reading.set()
        if not self.pages:
            await asyncio.Event().wait()
        lines = self.pages.pop(0)
        return {"lines": lines, "over": bool(lines) and lines[-1]["type"] in ("usage", "error")}

    async def close(self, chat: str) -> None:
        self.closed.append(chat)


def serving_over(replica: FakeReplica, manager: FakeManager | None = None) -> Serving:
    return Serving(manager or FakeManager(), lambda adapter: replica, new_name=lambda: "c1")


def order(**changes: Any) -> ChatOrder:
    return ChatOrder.model_validate({"tenant": "alice", "messages": HELLO, **changes})


async def lines_of(chat: Chat) -> list[dict[str, Any]]:
    return [line async for page in chat.lines() for line in page]


async def test_the_base_model_needs_no_manager():
    chat = await Serving(None, lambda adapter: FakeReplica([BEGIN], [], [USAGE])).begin(order())
    assert (chat.version, await lines_of(chat)) == (None, [BEGIN, USAGE])


async def test_a_bare_job_is_served_by_its_latest_version_and_the_answer_says_which():
    replica, manager = FakeReplica([BEGIN, USAGE]), FakeManager(head=3)
    chat = await serving_over(replica, manager).begin(order(job="job_a"))
    assert chat.version == 3
    assert replica.opened == [("c1", 3, False), ("c1", 3, True)]
    assert manager.read == [("job_a", 3)]


async def test_the_files_of_an_adapter_that_the_sampler_holds_do_not_travel_again():
    manager = FakeManager()
    await serving_over(FakeReplica([BEGIN, USAGE], holds=True), manager).begin(order(job="job_a", version=1))
    assert manager.read == []


@pytest.mark.parametrize("asked", [{"job": "job_a", "version": 4}, {"job": "job_b"}, {"job": "job_a", "tenant": "bob"}])
async def test_what_is_not_the_tenants_is_not_there(asked: dict[str, Any]):
    replica = FakeReplica()
    with pytest.raises(NotFound):
        await serving_over(replica).begin(order(**asked))
    assert replica.opened == []


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (PortError("too long", attribution="user"), Invalid),
        (TooMany("too many"), Conflict),
        (PortError("the process died"), NotReady),
    ],
)
async def test_a_refusal_has_the_status_of_whose_fault_it_is(refusal: PortError, error: type[Exception]):
    with pytest.raises(error):
        await serving_over(FakeReplica(refuses=refusal)).begin(order())


async def test_a_chat_that_found_no_place_is_refused_before_the_first_byte():
    busy = {"type": "error", "code": "busy", "message": "no place"}
    with pytest.raises(NotReady) as refused:
        await serving_over(FakeReplica([busy])).begin(order())
    assert refused.value.code == "busy"


async def test_a_sampler_that_dies_is_the_last_line():
    class Dying(FakeReplica):
        async def read(self, chat: str) -> dict[str, Any]:
            if self.pages:
                return await super().read(chat)
            raise PortError("its process died")

    chat = await serving_over(Dying([BEGIN])).begin(order())
    assert (await lines_of(chat))[-1] == {"type": "error", "code": "failed", "message": "its process died"}


# The route


def app_of(replica: FakeReplica) -> Any:
    return create_app(object(), "secret", serving=serving_over(replica))


async def post(replica: FakeReplica, body: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app_of(replica)), base_url="http://engine") as client:
        return await client.post("/generate", json=body, headers={"Authorization": "Bearer secret"})


async def test_lines_come_over_http_and_the_chat_is_closed_then():
    replica = FakeReplica([BEGIN], [USAGE])
    answer = await post(replica, {"tenant": "alice", "job": "job_a", "messages": HELLO})
    assert (answer.status_code, answer.headers["X-Policy-Version"]) == (200, "3")
    assert [json.loads(line) for line in answer.text.splitlines()] == [BEGIN, USAGE]
    assert replica.closed == ["c1"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": []}, "messages"),
        ({"n": 9}, "n"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"speed": 1}, "speed"),
        ({"temperature": 3}, "temperature"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages.0.role"),
    ],
)
async def test_a_bad_order_is_refused_with_its_field(change: dict[str, Any], field: str):
    refused = await post(FakeReplica(), {"tenant": "alice", "messages": HELLO, **change})
    assert refused.status_code == 422
    assert refused.json()["error"]["problems"][0]["field"] == field


async def test_an_unknown_version_is_404():
    assert (await post(FakeReplica(), {"tenant": "alice", "job": "job_a", "version": 9, "messages": HELLO})).status_code == 404


@pytest.mark.parametrize("pages", [[], [[BEGIN]]], ids=["before its first line", "in the middle"])
async def test_a_chat_ends_with_its_client(pages: list[Any]):
    replica = FakeReplica(*pages)
    body = json.dumps({"tenant": "alice", "messages": HELLO}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {"type": "http", "method": "POST", "path": "/generate", "raw_path": b"/generate", "query_string": b"", "asgi": {}}
    scope["headers"] = [(b"authorization", b"Bearer secret"), (b"content-type", b"application/json")]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await replica.reading.wait()
        while replica.pages:
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None: ...

    async with asyncio.timeout(10):
        await app_of(replica)(scope, receive, send)
    assert replica.closed == ["c1"]
