"""The stream of a job's events, over the asynchronous handler that serves it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.test import AsyncClient

from portal.jobs.models import Job, JobEvent, State
from tenants import actions, members, tokens
from tests.portal.api.test_api import error
from tests.portal.world import NOW, World

pytestmark = pytest.mark.django_db(transaction=True)


def add(job: Job, first: int, last: int, kind: str = "novelty") -> None:
    JobEvent.objects.bulk_create(
        JobEvent(tenant_id=job.tenant_id, job=job, seq=seq, kind=kind, at=NOW, data={"n": seq}) for seq in range(first, last + 1)
    )


async def announce(job: Job, seq: int) -> None:
    await get_channel_layer().group_send(job.group, {"type": "job.events", "seq": seq})


@pytest.fixture
def job(world: World) -> Job:
    return world.job()


@pytest.fixture
def token(world: World) -> tuple[Any, str]:
    return tokens.issue(world.sums, world.bob, "t", datetime.now(UTC))


async def listen(text: str, job: Job, **headers: str) -> Any:
    headers = {"Authorization": f"Bearer {text}", "Accept": "text/event-stream", **headers}
    return await AsyncClient().get(f"/api/v1/jobs/{job.public_id}/events/stream/", headers=headers)


@asynccontextmanager
async def stream(answer: Any) -> AsyncIterator[Any]:
    chunks = aiter(answer.streaming_content)

    async def following() -> str:
        async with asyncio.timeout(10):
            return (await anext(chunks)).decode()

    assert await following() == "retry: 2000\n\n"
    yield following
    await chunks.aclose()


def seq_of(frame: str) -> int:
    head, data = frame.strip().split("\n")
    assert head == f"id: {json.loads(data.removeprefix('data: '))['seq']}"
    return int(head.removeprefix("id: "))


async def test_events_come_numbered_first_those_that_are_there_then_each_as_it_comes(job: Job, token: Any) -> None:
    await sync_to_async(add)(job, 1, 2)
    async with stream(await listen(token[1], job)) as following:
        assert [seq_of(await following()), seq_of(await following())] == [1, 2]
        await sync_to_async(add)(job, 3, 3)
        await announce(job, 3)
        assert seq_of(await following()) == 3


async def test_a_reconnect_goes_on_behind_the_last_id(job: Job, token: Any) -> None:
    await sync_to_async(add)(job, 1, 9)
    async with stream(await listen(token[1], job, **{"Last-Event-ID": "7"})) as following:
        assert [seq_of(await following()), seq_of(await following())] == [8, 9]


async def test_it_ends_with_the_job_and_then_tells_clients_not_to_come_again(job: Job, token: Any) -> None:
    await sync_to_async(add)(job, 1, 1, "ended")
    async with stream(await listen(token[1], job)) as following:
        assert seq_of(await following()) == 1
        with pytest.raises(StopAsyncIteration):
            await following()
    await sync_to_async(Job.objects.filter(pk=job.pk).update)(state=State.SUCCEEDED)
    assert (await listen(token[1], job, **{"Last-Event-ID": "1"})).status_code == 204


async def test_what_is_told_of_a_job_after_its_end_is_the_last_of_the_stream(job: Job, token: Any) -> None:
    await sync_to_async(add)(job, 1, 1, "ended")
    await sync_to_async(add)(job, 2, 2, "version_deleted")
    async with stream(await listen(token[1], job)) as following:
        assert [seq_of(await following()), seq_of(await following())] == [1, 2]
        with pytest.raises(StopAsyncIteration):
            await following()
    await sync_to_async(Job.objects.filter(pk=job.pk).update)(state=State.SUCCEEDED)
    async with stream(await listen(token[1], job, **{"Last-Event-ID": "1"})) as following:
        assert seq_of(await following()) == 2
        with pytest.raises(StopAsyncIteration):
            await following()


def revoke(world: World, token: Any) -> None:
    actions.revoke_token(world.sums, world.bob, token, datetime.now(UTC))


def remove_the_person(world: World, token: Any) -> None:
    members.remove(world.sums, world.alice, world.sums.memberships.get(user=world.bob), NOW)


def suspend(world: World, token: Any) -> None:
    world.sums.suspended_at = NOW
    world.sums.save()


def report_as_leaked(world: World, token: Any) -> None:
    tokens.revoke(token, NOW)
    actions.look_again(world.bob.pk)


@pytest.mark.parametrize("ending", [revoke, remove_the_person, suspend, report_as_leaked])
async def test_an_open_stream_closes_at_once_when_the_right_to_it_ends(world: World, job: Job, token: Any, ending: Any) -> None:
    async with stream(await listen(token[1], job)) as following:
        await sync_to_async(ending)(world, token[0])
        assert (await following()).startswith("event: closed")
        with pytest.raises(StopAsyncIteration):
            await following()


async def test_a_refusal_is_json_in_the_one_shape(world: World, job: Job, token: Any) -> None:
    _, strangers = await sync_to_async(tokens.issue)(world.other, world.charlie, "t", datetime.now(UTC))
    refused = await listen(strangers, job)
    assert (error(refused, 404)["code"], refused["Content-Type"]) == ("not_found", "application/json")
    assert error(await listen(token[1], job, **{"Last-Event-ID": "x"}), 400)["param"] == "Last-Event-ID"
