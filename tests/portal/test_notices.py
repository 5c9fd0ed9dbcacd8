"""Being told that a job ended or paused: once, in the page, by mail and by signed webhook, until it arrives, never across tenants."""

from __future__ import annotations

import base64
import hmac
import json
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from django.core import mail

from engine.rewards.outbound import Reply, Unreachable
from portal.errors import Invalid
from portal.jobs import lifecycle
from portal.jobs.models import Job
from portal.notices import carrying, telling, webhooks
from portal.notices.models import Delivery, Notice, NoticeSetting, Webhook
from tenants.access import Forbidden
from tests.portal.world import NOW, World

URL = "https://hooks.example.org/jobs"


class Receiver:
    """``answers``: a status each, or an error; the last one for ever."""

    def __init__(self, *answers: Any):
        self.answers, self.requests = list(answers), []

    def __call__(self, url: str, body: bytes, headers: Any, owner: str) -> Reply:
        self.requests.append((url, body, dict(headers), owner))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Reply(status=answer, body=b"")


def ended(job: Job, state: str = "succeeded", seq: int = 7) -> Notice | None:
    before = job.state
    Job.objects.filter(pk=job.pk).update(state=state, state_reason="All steps are done", last_seq=seq)
    job.refresh_from_db()
    return telling.tell(job, before, NOW)


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "paused"])
def test_an_end_and_a_pause_are_told(world: World, state: str) -> None:
    notice = ended(world.job(), state)
    assert (notice.kind, notice.reason) == (f"job.{state}", "All steps are done")


@pytest.mark.parametrize("state", ["queued", "running"])
def test_what_goes_on_is_not(world: World, state: str) -> None:
    assert ended(world.job(), state) is None


def test_the_same_event_twice_is_told_once(world: World) -> None:
    job = world.job()
    ended(job)
    Job.objects.filter(pk=job.pk).update(state="running")
    job.refresh_from_db()
    assert ended(job) is None
    assert (Notice.objects.count(), Delivery.objects.count()) == (1, 1)


def test_an_ending_that_only_the_portal_knows_of_is_told_too(world: World) -> None:
    lifecycle.refuse(world.job(), [("spec", "too large")], NOW)
    assert Notice.objects.get().kind == "job.failed"


def test_a_mail_goes_to_whoever_started_the_job_unless_it_is_turned_off(world: World) -> None:
    ended(world.job(world.bob, name="Sums\nSubject: forged"[:20].replace("\n", " ")))
    NoticeSetting.objects.create(tenant=world.sums, user=world.alice, email=False)
    ended(world.job(world.alice))
    carrying.sweep(NOW)
    told = [(letter.to, letter.subject.removeprefix("MARLaaS: ")) for letter in mail.outbox]
    assert told == [(["bob@example.org"], "A job has succeeded")]
    assert "Reason: All steps are done" in mail.outbox[0].body


def test_who_has_left_gets_no_mail(world: World) -> None:
    job = world.job(world.bob)
    world.bob.memberships.all().delete()
    ended(job)
    assert not Delivery.objects.exists()


@pytest.fixture
def hook(world: World) -> tuple[Webhook, str]:
    NoticeSetting.objects.create(tenant=world.sums, user=world.alice, email=False)
    return webhooks.create_webhook(world.sums, world.alice, URL)


def test_a_webhook_gets_a_signed_message_that_a_library_would_verify(world: World, hook: tuple[Webhook, str]) -> None:
    notice, receiver = ended(job := world.job(name="Sums")), Receiver(200)
    carrying.sweep(NOW, post=receiver)
    [(url, body, headers, owner)] = receiver.requests
    told = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = hmac.new(base64.b64decode(hook[1].removeprefix("whsec_")), told, sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(expected).decode()
    assert (url, owner, headers["webhook-id"]) == (URL, world.sums.public_id, notice.public_id)
    assert json.loads(body)["data"] | {"version": 0} == {
        **{"id": job.public_id, "name": "Sums", "state": "succeeded"},
        **{"reason": "All steps are done", "version": 0},
    }


def test_its_secret_is_stored_sealed(hook: tuple[Webhook, str]) -> None:
    _, secret = hook
    assert secret not in Webhook.objects.get().secret
    assert secret.startswith("whsec_")


def test_it_is_tried_with_growing_pauses_under_the_same_id_until_it_arrives(world: World, hook: Any) -> None:
    ended(world.job())
    receiver, now = Receiver(500, Unreachable("no answer"), 204), NOW
    for pause in (5, 60):
        assert carrying.sweep(now, post=receiver) == 1
        assert carrying.sweep(now + timedelta(seconds=pause - 1), post=receiver) == 0
        now += timedelta(seconds=pause)
    carrying.sweep(now, post=receiver)
    delivery = Delivery.objects.get()
    assert (delivery.attempts, delivery.status, delivery.error, delivery.next_try_at) == (3, 204, "", None)
    assert delivery.delivered_at == now
    assert len({headers["webhook-id"] for _, _, headers, _ in receiver.requests}) == 1


def test_it_is_given_up_in_the_end_and_can_be_sent_again(world: World, hook: Any) -> None:
    ended(world.job())
    receiver, now = Receiver(410), NOW
    for pause in (*carrying.PAUSES, timedelta()):
        carrying.sweep(now, post=receiver)
        now += pause
    delivery = Delivery.objects.get()
    assert (delivery.next_try_at, delivery.delivered_at, delivery.error) == (None, None, "answered 410")
    assert "given up" in world.client(world.alice).get("/notifications/").content.decode()
    world.client(world.alice).post(f"/notifications/deliveries/{delivery.pk}/again/")
    delivery.refresh_from_db()
    assert delivery.next_try_at is not None


def test_two_carriers_send_it_once(world: World, hook: Any) -> None:
    ended(world.job())
    pk, receiver = Delivery.objects.get().pk, Receiver(200)

    def meanwhile(*given: Any) -> Reply:
        assert not carrying.carry(pk, NOW, post=receiver)
        return receiver(*given)

    assert carrying.carry(pk, NOW, post=meanwhile)
    assert len(receiver.requests) == 1


PRIVATE = ("http://example.org/", "https://127.0.0.1/", "https://localhost/", "ftp://example.org", "https://a@b.org/", "x")


@pytest.mark.parametrize("url", PRIVATE)
def test_only_public_addresses_are_taken(world: World, url: str) -> None:
    with pytest.raises(Invalid):
        webhooks.create_webhook(world.sums, world.alice, url)


def test_an_address_is_told_once(world: World) -> None:
    webhooks.create_webhook(world.sums, world.alice, URL)
    with pytest.raises(Invalid, match="is told already"):
        webhooks.create_webhook(world.sums, world.alice, f" {URL} ")


def test_members_and_viewers_add_no_webhook(world: World) -> None:
    for user in (world.bob, world.vera):
        with pytest.raises(Forbidden):
            webhooks.create_webhook(world.sums, user, URL)


def test_the_secret_is_in_one_answer_only(world: World) -> None:
    client = world.client(world.alice)
    answer = client.post("/notifications/webhooks/", {"url": URL})
    secret = answer.context["secret"]
    assert secret in answer.content.decode()
    assert secret not in client.get("/notifications/").content.decode()


def test_a_bad_address_is_told_at_its_field(world: World) -> None:
    answer = world.client(world.alice).post("/notifications/webhooks/", {"url": "http://example.org"})
    assert answer.status_code == 422
    assert "must begin with https://" in answer.content.decode()


def test_an_address_that_is_too_long_is_refused_at_its_field_and_not_cut_by_the_form(world: World) -> None:
    client, longest = world.client(world.alice), f"{URL}?".ljust(500, "x")
    assert 'maxlength="' not in client.get("/notifications/").content.decode().split('id="hook-url"')[1].split(">")[0]
    answer = client.post("/notifications/webhooks/", {"url": longest + "x"})
    assert (answer.status_code, "has 501 characters; an address may have 500" in answer.content.decode()) == (422, True)
    assert longest + "x" in answer.content.decode()  # it stands there to be mended
    assert client.post("/notifications/webhooks/", {"url": longest}).status_code == 200
    assert world.sums.webhooks.get().url == longest


def test_what_is_new_is_counted_until_it_is_looked_at(world: World) -> None:
    ended(world.job())
    client = world.client(world.bob)
    assert 'aria-label="Notifications, 1 new"' in client.get("/").content.decode()
    assert 'class="badge badge-plain">new' in client.get("/notifications/").content.decode()
    assert ", 1 new" not in client.get("/").content.decode()


def test_another_tenants_notices_and_webhooks_are_not_there(world: World, hook: tuple[Webhook, str]) -> None:
    ended(world.job(name="secret plan"))
    client = world.client(world.charlie)
    html = client.get("/notifications/").content.decode()
    assert "secret plan" not in html
    assert URL not in html
    assert client.post(f"/notifications/webhooks/{hook[0].public_id}/remove/").status_code == 404
    assert client.post(f"/notifications/deliveries/{Delivery.objects.get().pk}/again/").status_code == 404
