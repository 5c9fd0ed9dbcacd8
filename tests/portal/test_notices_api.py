"""Notifications, webhooks and the log of deliveries over REST."""

from __future__ import annotations

from typing import Any

import pytest

from portal.notices import carrying
from portal.notices.models import Delivery, NoticeSetting
from tests.portal.test_notices import URL, Receiver, ended
from tests.portal.world import NOW, World

V1 = "/api/v1"


def post(client: Any, path: str, body: dict[str, Any] | None = None) -> Any:
    return client.post(f"{V1}/{path}", body or {}, content_type="application/json")


def test_notifications_say_what_happened_and_what_is_read_by_whom(world: World) -> None:
    first, second = ended(world.job(name="One")), ended(world.job(name="Two"), "failed")
    client = world.api(world.vera, scopes=("jobs:read",))
    found = client.get(f"{V1}/notifications/").json()["results"]
    assert [(one["type"], one["job_name"], one["read"]) for one in found] == [("job.failed", "Two", False), ("job.succeeded", "One", False)]
    assert post(client, "notifications/read/", {"up_to": first.public_id}).json() == {"unread": 1}
    assert [one["read"] for one in client.get(f"{V1}/notifications/").json()["results"]] == [False, True]
    assert post(client, "notifications/read/").json() == {"unread": 0}
    assert post(client, "notifications/read/", {"up_to": first.public_id}).json() == {"unread": 0}  # never back
    assert not world.api(world.bob).get(f"{V1}/notifications/").json()["results"][0]["read"]
    assert second.pk == NoticeSetting.objects.get(user=world.vera).read_id


def test_a_strangers_notification_is_not_there(world: World) -> None:
    notice = ended(world.job())
    client = world.api(world.charlie)
    assert client.get(f"{V1}/notifications/").json()["results"] == []
    assert post(client, "notifications/read/", {"up_to": notice.public_id}).status_code == 404


def test_a_webhook_is_made_with_a_secret_that_is_shown_once(world: World) -> None:
    client = world.api(world.alice)
    made = post(client, "webhooks/", {"url": URL})
    assert (made.status_code, made["Cache-Control"], made.json()["secret"][:6]) == (201, "no-store", "whsec_")
    listed = client.get(f"{V1}/webhooks/").json()["results"]
    assert [(hook["id"], hook["url"], "secret" in hook) for hook in listed] == [(made.json()["id"], URL, False)]
    assert client.delete(f"{V1}/webhooks/{made.json()['id']}/").status_code == 204
    assert client.get(f"{V1}/webhooks/").json()["results"] == []


def test_a_private_address_is_refused_by_its_field(world: World) -> None:
    refused = post(world.api(world.alice), "webhooks/", {"url": "https://10.0.0.1/"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "url")


def test_the_log_tells_of_each_delivery_and_sends_it_again(world: World) -> None:
    world.webhook()
    NoticeSetting.objects.create(tenant=world.sums, user=world.alice, email=False)
    ended(world.job())
    carrying.sweep(NOW, post=Receiver(500))
    client = world.api(world.alice)
    [line] = client.get(f"{V1}/deliveries/").json()["results"]
    assert (line["state"], line["attempts"], line["status"], line["error"]) == ("waiting", 1, 500, "answered 500")
    again = post(client, f"deliveries/{line['id']}/again/")
    assert (again.status_code, again.json()["attempts"]) == (202, 0)
    assert post(world.api(world.bob), f"deliveries/{line['id']}/again/").status_code == 403
    assert post(world.api(world.charlie), f"deliveries/{line['id']}/again/").status_code == 404


def test_a_mail_is_not_sent_again_by_hand(world: World) -> None:
    ended(world.job())
    assert post(world.api(world.alice), f"deliveries/{Delivery.objects.get().pk}/again/").status_code == 404


@pytest.mark.parametrize(("method", "path"), [("get", "webhooks/"), ("get", "deliveries/"), ("post", "webhooks/")])
def test_webhooks_belong_to_the_organisations_scopes(world: World, method: str, path: str) -> None:
    client = world.api(world.alice, scopes=("jobs:read", "jobs:write"))
    assert getattr(client, method)(f"{V1}/{path}").status_code == 403
