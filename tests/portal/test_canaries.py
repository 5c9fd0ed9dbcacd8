"""What one organisation wrote appears nowhere in another's: every text of Alice's carries a canary, and Charlie looks everywhere."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from portal.accounts import export
from portal.jobs import delivery
from portal.jobs.models import Job, JobEvent
from tenants.models import Tenant
from tests.portal.fake_engine import FakeEngine
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
    world.sums.memberships.create(user=type(world.alice).objects.create_user("eve@example.org"))
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
    from django.test import Client

    return Client(headers={"Authorization": f"Bearer {text}"})
