"""Lines of the engine's logs: in both forms, and with the ids of what they are about, from the portal's request to the job's tasks."""

from __future__ import annotations

import json
import logging

import httpx
import pytest

from engine import logs
from engine.service import create_app
from tests.engine.world import World

SECRET = "secret"


def line(*, as_json: bool, error: BaseException | None = None) -> str:
    info = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("engine.work", logging.WARNING, __file__, 1, "%s is slow", ("disk",), info)
    record.created, record.msecs = 1767225600.25, 250.0
    return logs.formatter(as_json=as_json).format(record)


def test_people_read_the_ids_behind_the_message() -> None:
    with logs.about(job="job_a", tenant="ten_1", request_id=""):
        assert line(as_json=False).endswith(" WARNING engine.work: disk is slow job=job_a tenant=ten_1")
    assert line(as_json=False).endswith("disk is slow")


def test_machines_read_one_object_with_the_portals_names() -> None:
    with logs.about(job="job_a"):
        told = json.loads(line(as_json=True))
    assert told == {
        **{"event": "disk is slow", "job": "job_a", "logger": "engine.work", "level": "warning"},
        "timestamp": "2026-01-01T00:00:00.250000Z",
    }


def test_a_traceback_stays_in_the_line() -> None:
    told = line(as_json=True, error=ValueError("no"))
    assert "\n" not in told and json.loads(told)["exception"].endswith("ValueError: no")


def test_what_is_begun_inside_is_about_its_own_ids_only() -> None:
    with logs.about(request_id="req_1"):
        with logs.about(job="job_a"):
            assert logs.ids() == {"job": "job_a"}
        assert logs.ids() == {"request_id": "req_1"}
    assert logs.ids() == {}


class Seen(logging.Handler):
    """(message, ids) of each line, as the formatter would see them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, dict[str, str]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), dict(logs.ids())))


@pytest.fixture
def seen():
    handler, logger = Seen(), logging.getLogger("engine")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler.lines
    logger.removeHandler(handler)
    logger.setLevel(before)


async def ask(world: World, method: str, path: str, request_id: str = "req_1", **body: object) -> None:
    transport = httpx.ASGITransport(create_app(world.manager, SECRET))
    headers = {"Authorization": f"Bearer {SECRET}", "X-Request-Id": request_id}
    async with httpx.AsyncClient(transport=transport, base_url="http://engine", headers=headers) as client:
        await client.request(method, path, **body)


@pytest.mark.asyncio
async def test_what_changes_a_job_has_a_line_with_the_portals_request(world: World, seen: list) -> None:
    await ask(world, "PUT", "/jobs/job_a", json=world.submission(steps=1))
    await ask(world, "GET", "/status")
    assert seen == [("PUT /jobs/job_a: 200", {"request_id": "req_1", "job": "job_a"})]


@pytest.mark.asyncio
async def test_nobody_writes_lines_of_his_own_into_the_log(world: World, seen: list) -> None:
    await ask(world, "POST", "/jobs/job%0Aevil/cancel", request_id="req_1 job=job_of_another")
    assert seen == [("POST /jobs/job%0Aevil/cancel: 404", {})]


@pytest.mark.asyncio
async def test_whatever_a_jobs_work_logs_is_about_job_and_tenant(world: World, seen: list) -> None:
    world.script.fail("step", "job_a", error=ValueError("no"))
    with logs.about(request_id="req_1"):
        await world.submit("job_a", steps=1)
        await world.ended("job_a")
    about = [ids for message, ids in seen if "train_lost" in message]
    assert about and all(ids == {"job": "job_a", "tenant": world.submission()["tenant"]} for ids in about)
