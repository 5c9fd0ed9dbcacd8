"""What one organisation wrote appears nowhere in another's: every text of Alice's carries a canary, and Charlie looks everywhere."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from asgiref.sync import sync_to_async
from celery.signals import before_task_publish
from channels.layers import InMemoryChannelLayer
from django.test import Client

from engine.rewards.outbound import Reply
from portal.accounts import deletion, export
from portal.celery import app
from portal.datasets import uploads
from portal.jobs import delivery
from portal.jobs.announce import announce_group
from portal.jobs.models import Job, JobEvent
from portal.notices import carrying, telling
from portal.rewards import lab
from portal.rewards.trial import parse_trial
from tenants.models import Tenant
from tests.portal.fake_engine import FakeEngine
from tests.portal.jobs.test_consumers import add_events, close_code, socket
from tests.portal.tenancy_table import rights
from tests.portal.test_tenancy import fill, patterns
from tests.portal.test_tenancy_table import bearer, noun_of, things_of
from tests.portal.world import NOW, World, jsonl

CANARY = "canary7f3a"


def sing(world: World, engine: FakeEngine) -> None:
    """Alice writes the canary into all that takes text."""
    Tenant.objects.filter(pk=world.sums.pk).update(name=f"{CANARY} org", suspended_reason=CANARY)
    world.alice.name = CANARY
    world.alice.save()
    world.invitation(email=f"{CANARY}@example.org")
    api = bearer(world.sums, world.alice)
    rows = jsonl(*({"prompt": f"{CANARY} {n}", "answer": f"{CANARY}-{n}", CANARY: n} for n in range(40)))
    rows.name = f"{CANARY}.jsonl"
    made = {"dataset": api.post("/api/v1/datasets/", {"name": CANARY, "file": rows}).json()["id"]}
    grader = {"type": "python", "source": f"def grade(sample, item):\n    return 1.0  # {CANARY}\n"}
    body = {"name": CANARY, "grader": grader}
    made["reward"] = api.post("/api/v1/rewards/", body, content_type="application/json").json()["id"]
    order = {"name": CANARY, "base_model": "tiny-math", **made}
    job = Job.objects.get(public_id=api.post("/api/v1/jobs/", order, content_type="application/json").json()["id"])
    delivery.deliver(job.pk, NOW)
    JobEvent.objects.create(tenant=job.tenant, job=job, seq=1, kind=CANARY, at=NOW, data={"text": CANARY})
    api.post("/api/v1/tokens/", {"name": CANARY}, content_type="application/json")
    assert CANARY in api.get(f"/api/v1/jobs/{job.public_id}/events/").content.decode()


def everything_charlie_gets(world: World) -> Iterator[tuple[str, str]]:
    """(where, text) of each GET on every route, with his own things' names and with hers."""
    hers = things_of(world)
    pages, api = world.client(world.charlie), bearer(world.other, world.charlie)
    known = dict(patterns())
    for method, route in rights():
        if method != "get" or "stream/" in route:
            continue
        client = api if route.startswith(("api/", "v1/")) else pages
        answer = client.get(fill(known[route], route, hers[noun_of(route)]))
        text = b"".join(answer.streaming_content) if answer.streaming else answer.content
        yield route, text.decode("utf-8", "replace") + str(dict(answer.items()))


@pytest.fixture
def sung(world: World, engine: FakeEngine) -> World:
    world.dataset(world.charlie), world.reward(world.charlie), world.job(world.charlie)
    sing(world, engine)
    return world


def test_no_answer_of_anothers_has_it(sung: World) -> None:
    assert [route for route, text in everything_charlie_gets(sung) if CANARY in text] == []


def test_no_export_of_anothers_has_it(sung: World) -> None:
    zipped = zipfile.ZipFile(io.BytesIO(b"".join(export.archive(sung.other, NOW))))
    assert [name for name in zipped.namelist() if CANARY in name or CANARY.encode() in zipped.read(name)] == []


def test_no_mail_to_anybody_else_has_it(world: World, engine: FakeEngine, mailoutbox: list, django_capture_on_commit_callbacks) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        sing(world, engine)
    assert {to for mail in mailoutbox for to in mail.to} == {f"{CANARY}@example.org"}


def test_no_log_line_metric_or_engine_name_has_it(world: World, engine: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    sing(world, engine)
    assert CANARY not in caplog.text
    assert not any(CANARY in path for _, path in engine.calls)
    assert not any(CANARY in name for name in engine.jobs)


def test_no_metric_has_it(sung: World, settings: Any) -> None:
    settings.METRICS_TOKEN = "metrics"
    told = Client().get("/metrics", headers={"Authorization": "Bearer metrics"}).content.decode()
    assert "marlaas_" in told
    assert CANARY not in told


def test_no_file_is_named_by_it_and_no_other_tenants_holds_it(sung: World, settings: Any) -> None:
    files = [path for path in Path(settings.BLOBS_DIR).rglob("*") if path.is_file()]
    hers = {dataset.train_sha256 for dataset in sung.sums.datasets.all()} | {dataset.eval_sha256 for dataset in sung.sums.datasets.all()}
    assert len(files) > 2
    assert [path for path in files if CANARY in str(path)] == []
    assert [path for path in files if path.name not in hers and CANARY.encode() in path.read_bytes()] == []


def test_who_is_told_of_an_end_is_told_of_his_own(sung: World, mailoutbox: list) -> None:
    """Both have a webhook and a job that ends; mails and posts go out together."""
    webhooks = {sung.webhook(user).tenant: user for user in (sung.alice, sung.charlie)}
    assert set(webhooks) == {sung.sums, sung.other}
    for tenant in webhooks:
        job = tenant.jobs.first()
        reason = f"{CANARY} done" if tenant == sung.sums else "done"
        Job.objects.filter(pk=job.pk).update(state="succeeded", state_reason=reason, last_seq=9)
        job.refresh_from_db()
        telling.tell(job, "running", NOW)
    posted = []
    carrying.sweep(NOW, post=lambda url, body, headers, owner: posted.append((owner, body.decode())) or Reply(status=200, body=b""))
    assert len(posted) == 2
    assert [owner for owner, body in posted if CANARY in body] == [sung.sums.public_id]
    told = {letter.to[0]: letter.subject + letter.body for letter in mailoutbox}
    assert {to: CANARY in text for to, text in told.items()} == {"alice@example.org": True, "charlie@example.org": False}


@pytest.fixture
def published(settings: Any) -> Iterator[list[str]]:
    """Each message that goes to the queue, headers and body."""
    messages: list[str] = []

    def note(headers: Any = None, body: Any = None, **_: Any) -> None:
        messages.append(repr((headers, body)))

    before = app.conf.broker_url
    app.conf.update(task_always_eager=False, broker_url="memory://localhost")
    before_task_publish.connect(note, weak=False)
    yield messages
    before_task_publish.disconnect(note)
    app.conf.update(task_always_eager=True, broker_url=before)


def test_no_message_to_the_workers_has_it(
    world: World, engine: FakeEngine, published: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        sing(world, engine)
        file = jsonl({"prompt": CANARY, "answer": CANARY})
        uploads.begin(world.sums, world.alice, datetime.now(UTC), file=file, name=CANARY, filename=f"{CANARY}.jsonl", options={})
        trial = {"on": {"type": "text", "samples": [{"output_text": CANARY, "item": {"answer": CANARY}}]}}
        lab.begin_run(world.sums, world.alice, {"type": "numeric"}, parse_trial(trial), datetime.now(UTC))
        world.sums.refresh_from_db()
        deletion.delete_tenant(world.sums, world.alice, f"{CANARY} org", NOW)
    tasks = {word for message in published for word in message.split("'") if word.startswith("portal.")}
    assert {"portal.jobs.tasks.deliver", "portal.accounts.tasks.purge"} <= tasks
    assert [message for message in published if CANARY in message] == []


class Layer(InMemoryChannelLayer):
    """Remembers what was said to which group."""

    said: ClassVar[list[str]] = []

    async def group_add(self, group: str, channel: str) -> None:
        self.said.append(group)
        await super().group_add(group, channel)

    async def group_send(self, group: str, message: dict) -> None:
        self.said.append(f"{group} {message}")
        await super().group_send(group, message)


@pytest.mark.django_db(transaction=True)
async def test_no_frame_of_anothers_socket_and_no_group_has_it(world: World, engine: FakeEngine, settings: Any) -> None:
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": f"{__name__}.Layer"}}
    Layer.said.clear()
    his = await sync_to_async(world.job)(world.charlie)
    await sync_to_async(sing)(world, engine)
    hers = await sync_to_async(lambda: world.sums.jobs.first())()
    async with socket(world, world.charlie, his.public_id) as own, socket(world, world.charlie, hers.public_id) as strange:
        assert await close_code(strange) == 4404
        await sync_to_async(add_events)(his, 1, 3)
        async with socket(world, world.alice, hers.public_id) as hers_too:
            assert CANARY in (await hers_too.receive_output(timeout=10))["text"]
        for job, seq in ((hers, 1), (his, 3)):
            await announce_group(job.group, seq)
        frames = [(await own.receive_output(timeout=10))["text"]]
        while not await own.receive_nothing():
            frames.append((await own.receive_output(timeout=10))["text"])
    assert [seq for frame in frames for seq in seqs(frame)] == [1, 2, 3]
    assert [frame for frame in frames if CANARY in frame] == []
    assert len(Layer.said) >= 6
    assert [group for group in Layer.said if CANARY in group] == []


def seqs(frame: str) -> list[int]:
    return [event["seq"] for event in json.loads(frame).get("events", ())]


def test_no_secret_of_a_token_is_ever_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    api = world.api(world.bob)
    secret = api.post("/api/v1/tokens/", {"name": "x"}, content_type="application/json").json()["token"]
    for client in (bearer_of(secret), bearer_of(secret[:-1] + "a"), bearer_of(secret)):
        client.get("/api/v1/me/")
        client.get("/api/v1/nothing/")
        client.post("/api/v1/tokens/report/", json.dumps({"token": secret, "url": "https://x"}), content_type="application/json")
    hidden = secret.rpartition("_")[2]
    assert hidden[:20] not in caplog.text


def bearer_of(text: str) -> Any:
    return Client(headers={"Authorization": f"Bearer {text}"})
