"""Each POST of the API, sent ten times at once with one key: one effect, one answer; the same key with another body: a conflict."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from portal.api.reference import groups
from portal.api.reference_views import schema
from portal.jobs.models import Job
from portal.notices import carrying
from tenants import tokens
from tenants.models import AuditEntry
from tests.portal.api.test_schema import things_that_have_run
from tests.portal.fake_engine import FakeEngine
from tests.portal.test_notices import Receiver, ended
from tests.portal.world import NOW, World, additions

pytestmark = pytest.mark.timeout(300)
TIMES = 10
# Billing's open pages of Stripe (tests/portal/billing/test_api_writes.py); a leak is reported by nobody, so there is no one to hold a key.
ELSEWHERE = {"/api/v1/billing/checkout/", "/api/v1/billing/plan/", "/api/v1/billing/portal/", "/api/v1/tokens/report/"}
TRIAL = {"on": {"type": "text", "samples": [{"output_text": "42", "item": {"answer": "42"}}]}}


def orders(world: World) -> dict[str, tuple[str, dict[str, Any]]]:
    """Of each path of the schema: where it is sent, and a body that is taken."""
    known = things_that_have_run(world)
    job, member = known["jobs"]["public_id"], known["members"]["public_id"]
    paused, over = world.job(), world.job()
    world.webhook()
    ended(over)
    carrying.sweep(NOW, post=Receiver(500))
    Job.objects.filter(pk=paused.pk).update(state="paused")
    Job.objects.filter(pk=over.pk).update(state="succeeded", ended_at=NOW)
    token, _ = tokens.issue(world.sums, world.alice, "old", datetime.now(UTC))
    delivery = world.sums.notice_deliveries.exclude(webhook=None).first().pk
    dataset, reward = known["datasets"]["public_id"], known["rewards"]["public_id"]
    named = {
        "deliveries/{delivery}/again/": (f"deliveries/{delivery}/again/", {}),
        "datasets/{public_id}/lengths/": (f"datasets/{dataset}/lengths/", {"model": "tiny-math"}),
        "jobs/{public_id}/archive/": (f"jobs/{over.public_id}/archive/", {}),
        "jobs/{public_id}/unarchive/": (f"jobs/{over.public_id}/unarchive/", {}),
        "jobs/{public_id}/resume/": (f"jobs/{paused.public_id}/resume/", {}),
        "jobs/{public_id}/pause/": (f"jobs/{job}/pause/", {}),
        "jobs/{public_id}/checkpoints/{version}/keep/": (f"jobs/{job}/checkpoints/1/keep/", {}),
        "jobs/{public_id}/checkpoints/{version}/release/": (f"jobs/{job}/checkpoints/1/release/", {}),
        "jobs/{public_id}/cancel/": (f"jobs/{job}/cancel/", {}),
        "probes/{public_id}/cancel/": (f"probes/{known['probes']['public_id']}/cancel/", {}),
        "reward-runs/{public_id}/stop/": (f"reward-runs/{known['reward-runs']['public_id']}/stop/", {}),
        "rewards/{public_id}/run/": (f"rewards/{reward}/run/", TRIAL),
        "tokens/{token_id}/rotate/": (f"tokens/{token.token_id}/rotate/", {"overlap_hours": 1}),
        "members/{public_id}/owner/": (f"members/{member}/owner/", {}),  # the last: who sends it is an admin afterwards
    }
    bodies = {
        "datasets/": {"name": "sums", "file": additions(40)},
        "invitations/": {"email": "new@example.org"},
        "jobs/": {"dataset": dataset, "reward": reward, "base_model": "tiny-math"},
        "notifications/read/": {"up_to": world.sums.notices.first().public_id},
        "probes/": {"dataset": dataset, "reward": reward, "base_model": "tiny-math", "rows": 8},
        "rewards/": {"name": "exact", "grader": {"type": "math"}},
        "rewards/run/": {"grader": {"type": "numeric"}, **TRIAL},
        "rewards/validate/": {"grader": {"type": "numeric"}},
        "tokens/": {"name": "new"},
        "webhooks/": {"url": "https://hooks.example.org/more/"},
    }
    sent = {**{path: (path, body) for path, body in bodies.items()}, **named}
    return {f"/api/v1/{path}": (f"/api/v1/{where}", body) for path, (where, body) in sent.items()}


def at_once(send: Callable[[int], Any]) -> list[Any]:
    answers: list[Any] = [None] * TIMES

    def one(n: int) -> None:
        try:
            answers[n] = send(n)
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(n,)) for n in range(TIMES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def send(client: Client, path: str, body: dict[str, Any], key: str) -> Any:
    as_form = {"data": {**body, **({"file": additions(40)} if "file" in body else {})}}
    how = as_form if "file" in body else {"data": body, "content_type": "application/json"}
    return client.post(path, headers={"Idempotency-Key": key}, **how)


@pytest.mark.django_db(transaction=True)
def test_each_post_has_one_effect_and_one_answer(world: World, engine: FakeEngine, settings: Any) -> None:
    settings.API_CALLS_PER_MINUTE = {"token": 10_000, "tenant": 10_000}
    posts = {one.path for group in groups(schema(), "") for one in group.operations if one.method == "POST"}
    clients, wrong = [world.api(world.alice) for _ in range(TIMES)], {}
    known = orders(world)
    assert set(known) == posts - ELSEWHERE
    for path, (where, body) in known.items():
        before = AuditEntry.objects.count()
        answers = at_once(lambda n, where=where, body=body: send(clients[n], where, body, f"key of {where}"))
        other = send(clients[0], where, {**body, "name": "another"}, f"key of {where}")
        told = {(answer.status_code, answer.content) for answer in answers}
        effects = AuditEntry.objects.count() - before
        if len(told) != 1 or answers[0].status_code >= 300 or effects > 1 or other.status_code != 409:
            wrong[path] = (effects, other.status_code, sorted(status for status, _ in told), answers[0].content[:300])
    assert wrong == {}
