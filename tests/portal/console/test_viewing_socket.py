"""The live socket of a run that an operator looks at."""

from __future__ import annotations

import json

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.test import Client

from portal.asgi import application
from portal.jobs.consumers import JobConsumer
from portal.jobs.models import Job
from tests.portal.console.test_pages import operator, view_as
from tests.portal.world import World

pytestmark = pytest.mark.django_db(transaction=True)


async def opened(client: Client, job: Job) -> WebsocketCommunicator:
    cookie = f"sessionid={client.cookies['sessionid'].value}".encode()
    headers = [(b"origin", b"http://localhost"), (b"host", b"localhost"), (b"cookie", cookie)]
    connection = WebsocketCommunicator(application, f"/ws/jobs/{job.public_id}/?after=0", headers)
    assert (await connection.connect(timeout=10))[0]
    return connection


async def test_an_operator_follows_a_run_for_as_long_as_he_looks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobConsumer, "ping_seconds", 0.02)
    monkeypatch.setattr(JobConsumer, "check_seconds", 0.05)
    client, job = await sync_to_async(lambda: (world.client(operator()), world.job()))()
    await sync_to_async(view_as)(client, world)
    connection = await opened(client, job)
    assert json.loads((await connection.receive_output(timeout=10))["text"])["type"] == "ping"

    await sync_to_async(client.post)("/console/view/end/")
    while (message := await connection.receive_output(timeout=10))["type"] != "websocket.close":
        pass
    assert message["code"] == 4404
    await connection.disconnect()


async def test_an_operator_who_looks_at_another_organisation_sees_nothing_of_this_one(world: World) -> None:
    client, job = await sync_to_async(lambda: (world.client(operator()), world.job()))()
    await sync_to_async(client.post)(f"/console/tenants/{world.other.public_id}/view/", {"reason": "they ask"})
    connection = await opened(client, job)
    assert (await connection.receive_output(timeout=10))["code"] == 4404
    await connection.disconnect()
