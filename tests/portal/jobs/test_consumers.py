"""The live socket over the real ASGI stack, with an in-memory channel layer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from channels.testing import WebsocketCommunicator

from portal.accounts import deletion
from portal.asgi import application
from portal.jobs import reach
from portal.jobs.announce import announce_reach
from portal.jobs.consumers import JobConsumer
from portal.jobs.models import Job, JobEvent
from tenants import members
from tenants.models import Membership, User
from tests.portal.world import NOW, World

pytestmark = pytest.mark.django_db(transaction=True)
ORIGIN = b"http://localhost"


def add_events(job: Job, first: int, last: int) -> None:
    JobEvent.objects.bulk_create(
        JobEvent(tenant_id=job.tenant_id, job=job, seq=seq, kind="novelty", at=NOW, data={"n": seq}) for seq in range(first, last + 1)
    )


async def announce(job: Job, seq: int) -> None:
    await get_channel_layer().group_send(job.group, {"type": "job.events", "seq": seq})


def cookie_of(world: World, user: User | None) -> list[tuple[bytes, bytes]]:
    if user is None:
        return []
    return [(b"cookie", f"sessionid={world.client(user).cookies['sessionid'].value}".encode())]


@asynccontextmanager
async def socket(world: World, user: User | None, job: str, after: Any = 0, origin: bytes = ORIGIN) -> AsyncIterator[WebsocketCommunicator]:
    headers = [(b"origin", origin), (b"host", b"localhost"), *await sync_to_async(cookie_of)(world, user)]
    connection = WebsocketCommunicator(application, f"/ws/jobs/{job}/?after={after}", headers)
    connection.accepted = (await connection.connect(timeout=10))[0]
    yield connection
    await connection.disconnect()


async def close_code(connection: WebsocketCommunicator) -> int:
    return (await connection.receive_output(timeout=10))["code"]


async def receive_until(connection: WebsocketCommunicator, last: int) -> list[int]:
    """The numbers of the events that arrive until ``last`` does."""
    seqs: list[int] = []
    while not seqs or seqs[-1] < last:
        message = json.loads((await connection.receive_output(timeout=10))["text"])
        if message["type"] == "events":
            assert message["last"] == message["events"][-1]["seq"]
            seqs += [event["seq"] for event in message["events"]]
    return seqs


@pytest.fixture
def job(world: World) -> Job:
    return world.job()


async def test_a_member_gets_what_is_there_and_what_comes(world: World, job: Job) -> None:
    await sync_to_async(add_events)(job, 1, 3)
    async with socket(world, world.bob, job.public_id) as connection:
        assert await receive_until(connection, 3) == [1, 2, 3]
        await sync_to_async(add_events)(job, 4, 5)
        await announce(job, 5)
        assert await receive_until(connection, 5) == [4, 5]


async def test_an_event_has_the_shape_that_the_page_reads(world: World, job: Job) -> None:
    await sync_to_async(add_events)(job, 1, 1)
    async with socket(world, world.alice, job.public_id) as connection:
        message = json.loads((await connection.receive_output(timeout=10))["text"])
    event = {"seq": 1, "kind": "novelty", "at": NOW.isoformat(), "data": {"n": 1}}
    assert message == {"type": "events", "events": [event], "last": 1}


async def test_a_reconnect_resumes_after_the_last_number(world: World, job: Job) -> None:
    await sync_to_async(add_events)(job, 1, 9)
    async with socket(world, world.alice, job.public_id, after=7) as connection:
        assert await receive_until(connection, 9) == [8, 9]


async def test_a_burst_of_ten_thousand_arrives_without_gap_or_double(world: World, job: Job) -> None:
    async with socket(world, world.alice, job.public_id) as connection:
        for first in range(1, 10_001, 100):
            await sync_to_async(add_events)(job, first, first + 99)
            await announce(job, first + 99)
        assert await receive_until(connection, 10_000) == list(range(1, 10_001))


async def test_wake_ups_that_repeat_or_are_old_send_nothing(world: World, job: Job) -> None:
    await sync_to_async(add_events)(job, 1, 2)
    async with socket(world, world.alice, job.public_id) as connection:
        await receive_until(connection, 2)
        await announce(job, 2)
        await announce(job, 1)
        assert await connection.receive_nothing()


async def test_an_open_page_hears_at_once_that_its_engine_is_away_and_that_it_is_back(world: World, job: Job) -> None:
    async with socket(world, world.alice, job.public_id) as connection:
        await sync_to_async(reach.lost)("", NOW)
        await announce_reach()
        assert json.loads((await connection.receive_output(timeout=10))["text"])["engine_away_since"] == NOW.isoformat()
        await sync_to_async(reach.found)("")
        await announce_reach()
        assert json.loads((await connection.receive_output(timeout=10))["text"])["engine_away_since"] is None


async def test_a_lost_wake_up_is_made_good_by_the_ping(world: World, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobConsumer, "ping_seconds", 0.05)
    async with socket(world, world.alice, job.public_id) as connection:
        ping = json.loads((await connection.receive_output(timeout=10))["text"])
        assert ping == {"type": "ping", "last": 0, "engine_away_since": None, "engine_restarting": None}
        await sync_to_async(add_events)(job, 1, 1)
        assert await receive_until(connection, 1) == [1]


async def test_a_stranger_and_a_wrong_number_look_alike(world: World, job: Job) -> None:
    async with socket(world, world.charlie, job.public_id) as connection:
        assert await close_code(connection) == 4404
    async with socket(world, world.charlie, "job_aaaaaaaaaaaaaaaaaaaa") as connection:
        assert await close_code(connection) == 4404


@pytest.mark.parametrize("path", ["/ws/nope/", "/ws/jobs/", "/"])
async def test_a_path_with_no_socket_closes_as_one_that_is_not_there(world: World, path: str) -> None:
    connection = WebsocketCommunicator(application, path, [(b"origin", ORIGIN), (b"host", b"localhost")])
    assert (await connection.connect(timeout=10))[0]
    assert await close_code(connection) == 4404


async def test_nobody_is_asked_to_log_in(world: World, job: Job) -> None:
    async with socket(world, None, job.public_id) as connection:
        assert await close_code(connection) == 4401


@pytest.mark.parametrize("after", ["x", "-1", "1e3", "９", "99999999999"])
async def test_a_bad_cursor_is_refused(world: World, job: Job, after: str) -> None:
    async with socket(world, world.alice, job.public_id, after=after) as connection:
        assert await close_code(connection) == 4400


async def test_another_sites_page_cannot_connect(world: World, job: Job) -> None:
    async with socket(world, world.alice, job.public_id, origin=b"https://evil.example") as connection:
        assert not connection.accepted


def end_membership(world: World) -> None:
    Membership.objects.filter(user=world.bob).delete()


def switch_off(world: World) -> None:
    User.objects.filter(pk=world.bob.pk).update(is_active=False)


def log_out(world: World) -> None:
    from django.contrib.sessions.models import Session

    Session.objects.all().delete()


@pytest.mark.parametrize("ending", [end_membership, switch_off, log_out])
async def test_an_open_socket_closes_when_the_right_to_it_ends(
    world: World, job: Job, ending: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobConsumer, "ping_seconds", 0.02)
    monkeypatch.setattr(JobConsumer, "check_seconds", 0.05)
    async with socket(world, world.bob, job.public_id) as connection:
        await connection.receive_output(timeout=10)
        await sync_to_async(ending)(world)
        while (message := await connection.receive_output(timeout=10))["type"] != "websocket.close":
            assert "ping" in message["text"]
        assert message["code"] == 4404


def remove_from_the_organisation(world: World) -> None:
    members.remove(world.sums, world.alice, world.sums.memberships.get(user=world.bob), NOW)


def change_the_password(world: World) -> None:
    world.bob.set_password("a battery with a staple")
    world.bob.save()


def suspend(world: World) -> None:
    world.sums.suspended_at = NOW
    world.sums.save()


def delete_the_organisation(world: World) -> None:
    deletion.delete_tenant(world.sums, world.alice, "Sums", NOW)


@pytest.mark.parametrize("ending", [remove_from_the_organisation, change_the_password, suspend, delete_the_organisation])
async def test_an_open_socket_closes_at_once_not_at_its_next_look(world: World, job: Job, ending: Any) -> None:
    async with socket(world, world.bob, job.public_id) as connection:
        await sync_to_async(add_events)(job, 1, 1)
        await announce(job, 1)
        assert await receive_until(connection, 1) == [1]
        await sync_to_async(ending)(world)
        assert await close_code(connection) == 4404


async def test_one_jobs_wake_up_reaches_no_other_job(world: World, job: Job) -> None:
    other = await sync_to_async(world.job)()
    async with socket(world, world.alice, other.public_id) as connection:
        await sync_to_async(add_events)(job, 1, 1)
        await announce(job, 1)
        assert await connection.receive_nothing()


async def test_whatever_a_client_sends_is_ignored(world: World, job: Job) -> None:
    async with socket(world, world.alice, job.public_id) as connection:
        for words in ('{"subscribe": "all"}', "not json", "[" * 10_000):
            await connection.send_to(text_data=words)
        await connection.send_to(bytes_data=b"\xff")
        await sync_to_async(add_events)(job, 1, 1)
        await announce(job, 1)
        assert await receive_until(connection, 1) == [1]
