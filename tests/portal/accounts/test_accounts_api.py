from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from portal.api.limits import PerAddress
from tenants import tokens
from tenants.models import Role, Tenant
from tests.portal.api.test_api import error, post
from tests.portal.world import NOW, World

V1 = "/api/v1"


def patch(client: Client, path: str, body: Any) -> Any:
    return client.patch(V1 + path, json.dumps(body), content_type="application/json")


def bearer(text: str, **more: str) -> Client:
    return Client(headers={"Authorization": f"Bearer {text}"}, **more)


def test_a_token_is_made_shown_once_used_and_revoked(world: World) -> None:
    api = world.api(world.bob)
    made = post(api, "/tokens/", {"name": "nightly", "scopes": ["jobs:read"], "days": 7}).json()
    used = bearer(made["token"])
    assert used.get(f"{V1}/jobs/").status_code == 200
    assert "token" not in api.get(f"{V1}/tokens/{made['id']}/").json()
    assert api.delete(f"{V1}/tokens/{made['id']}/").status_code == 204
    assert error(used.get(f"{V1}/jobs/"), 401)["code"] == "token_revoked"


def test_a_token_makes_none_that_may_more_than_itself(world: World) -> None:
    api = world.api(world.bob, scopes=("tokens:write", "jobs:read"))
    assert "jobs:write" in error(post(api, "/tokens/", {"name": "x", "scopes": ["jobs:read", "jobs:write"]}), 403)["message"]
    assert post(api, "/tokens/", {"name": "x"}).json()["scopes"] == ["jobs:read"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokens/", {"name": "x"}),
        ("/invitations/", {"email": "dora@example.org"}),
        ("/rewards/", {"name": "x", "grader": {"type": "numeric"}}),
        ("/rewards/validate/", {"grader": {"type": "numeric"}}),
    ],
)
def test_a_field_that_is_not_known_is_refused_by_its_name_and_nothing_is_made(world: World, path: str, body: dict[str, Any]) -> None:
    before = world.sums.api_tokens.count(), world.sums.invitations.count(), world.sums.rewards.count()
    api = world.api(world.alice)
    refused = error(post(api, path, {**body, "expires_in_days": 1}), 400)
    assert (refused["param"], "leave it out" in refused["message"]) == ("expires_in_days", True)
    assert (world.sums.api_tokens.count() - 1, world.sums.invitations.count(), world.sums.rewards.count()) == before


def test_an_organisation_is_not_changed_by_a_field_that_it_has_not(world: World) -> None:
    assert error(patch(world.api(world.alice), "/organisation/", {"name": "New", "require_2fa": True}), 400)["param"] == "require_2fa"
    assert Tenant.objects.get(pk=world.sums.pk).name == "Sums"


def test_a_report_of_a_leak_may_say_more_than_we_know(world: World) -> None:
    _, text = tokens.issue(world.sums, world.bob, "x", datetime.now(UTC))
    assert post(Client(), "/tokens/report/", {"token": text, "found_by": "a scanner"}).status_code == 202
    assert error(bearer(text).get(f"{V1}/me/"), 401)["code"] == "token_revoked"


def test_a_rotated_token_and_its_successor_both_work(world: World) -> None:
    token, text = tokens.issue(world.sums, world.bob, "x", datetime.now(UTC))
    fresh = post(bearer(text), f"/tokens/{token.token_id}/rotate/", {"overlap_hours": 1}).json()
    assert (bearer(text).get(f"{V1}/me/").status_code, bearer(fresh["token"]).get(f"{V1}/me/").status_code) == (200, 200)
    assert bearer(text).get(f"{V1}/tokens/{token.token_id}/").json()["successor"] == fresh["id"]
    error(post(bearer(text), f"/tokens/{token.token_id}/rotate/", {}), 400)


def test_a_token_with_networks_is_closed_from_elsewhere_whatever_a_header_says(world: World) -> None:
    api = world.api(world.bob, addresses=("203.0.113.0/24",))
    assert error(api.get(f"{V1}/me/"), 401)["code"] == "token_address"
    assert error(api.get(f"{V1}/me/", headers={"X-Forwarded-For": "203.0.113.5"}), 401)["code"] == "token_address"
    assert api.get(f"{V1}/me/", REMOTE_ADDR="203.0.113.5").status_code == 200


def test_behind_one_proxy_the_address_is_the_one_it_wrote(world: World, settings) -> None:
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    api = world.api(world.bob, addresses=("203.0.113.0/24",))
    spoofed = {"X-Forwarded-For": "203.0.113.5, 198.51.100.1"}
    assert api.get(f"{V1}/me/", headers={"X-Forwarded-For": "9.9.9.9, 203.0.113.5"}).status_code == 200
    assert error(api.get(f"{V1}/me/", headers=spoofed), 401)["code"] == "token_address"


def test_whoever_finds_a_token_ends_it(world: World) -> None:
    _, text = tokens.issue(world.sums, world.bob, "x", datetime.now(UTC))
    answers = [post(Client(), "/tokens/report/", {"token": found, "url": "https://x"}).status_code for found in (text, text, "mrl_live_no")]
    assert answers == [202, 202, 202]
    assert error(bearer(text).get(f"{V1}/me/"), 401)["code"] == "token_revoked"


def test_reports_of_leaks_are_counted_by_address(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PerAddress, "clock", lambda self=None: NOW)
    answers = [
        Client().post(f"{V1}/tokens/report/", {"token": "x"}, content_type="application/json", headers={"X-Forwarded-For": f"10.0.0.{n}"})
        for n in range(31)
    ]
    assert [answer.status_code for answer in answers] == [202] * 30 + [429]


def test_the_organisation_is_renamed_by_its_admins_alone(world: World) -> None:
    assert patch(world.api(world.alice), "/organisation/", {"name": "Sums and more"}).json()["name"] == "Sums and more"
    error(patch(world.api(world.bob), "/organisation/", {"name": "Mine"}), 403)


def test_members_are_listed_changed_and_removed(world: World) -> None:
    api = world.api(world.alice)
    ids = {m["email"]: m["id"] for m in api.get(f"{V1}/members/").json()["results"]}
    assert patch(api, f"/members/{ids['bob@example.org']}/", {"role": "admin"}).json()["role"] == "admin"
    assert api.delete(f"{V1}/members/{ids['vera@example.org']}/").status_code == 204
    assert error(api.delete(f"{V1}/members/{ids['alice@example.org']}/"), 400)["param"] == "member"
    assert post(api, f"/members/{ids['bob@example.org']}/owner/").json()["role"] == "owner"
    assert world.sums.memberships.get(user=world.alice).role == Role.ADMIN


def test_somebody_is_invited_and_the_invitation_withdrawn(world: World, mailoutbox: list, django_capture_on_commit_callbacks) -> None:
    api = world.api(world.alice)
    with django_capture_on_commit_callbacks(execute=True):
        made = post(api, "/invitations/", {"email": "dora@example.org"}).json()
    assert "http://testserver/join/" in mailoutbox[0].body
    assert api.delete(f"{V1}/invitations/{made['id']}/").status_code == 204
    link = mailoutbox[0].body.split("http://testserver")[1].split()[0]
    assert Client().get(link).status_code == 404


def test_the_log_says_through_which_token_and_from_where(world: World) -> None:
    token, text = tokens.issue(world.sums, world.alice, "x", datetime.now(UTC))
    answer = post(bearer(text, REMOTE_ADDR="198.51.100.7"), "/rewards/", {"name": "exact", "grader": {"type": "math"}})
    found = bearer(text).get(f"{V1}/audit/", {"noun": "reward"}).json()["results"]
    assert [(e["action"], e["actor"], e["token"], e["address"], e["target"], e["request_id"]) for e in found] == [
        ("reward.created", "alice@example.org", token.token_id, "198.51.100.7", answer.json()["id"], answer["X-Request-Id"])
    ]


def test_members_do_not_read_the_log(world: World) -> None:
    error(world.api(world.bob).get(f"{V1}/audit/"), 403)


def test_a_suspended_organisation_is_closed_but_says_who_one_is(world: World) -> None:
    Tenant.objects.filter(pk=world.sums.pk).update(suspended_at=datetime.now(UTC), suspended_reason="Unpaid.")
    api = world.api(world.bob)
    refused = error(api.get(f"{V1}/jobs/"), 403)
    assert (refused["code"], "Unpaid." in refused["message"]) == ("suspended", True)
    assert api.get(f"{V1}/me/").status_code == 200
    assert world.client(world.bob).get("/jobs/").status_code == 403


def test_an_organisation_that_requires_a_second_factor_is_closed_to_tokens_of_people_without(world: World) -> None:
    Tenant.objects.filter(pk=world.sums.pk).update(require_mfa=True)
    assert error(world.api(world.bob).get(f"{V1}/jobs/"), 403)["code"] == "mfa_required"
    world.bob.authenticator_set.create(type="totp", data={})
    assert world.api(world.bob).get(f"{V1}/jobs/").status_code == 200


def test_recovery_codes_alone_are_no_second_factor(world: World) -> None:
    Tenant.objects.filter(pk=world.sums.pk).update(require_mfa=True)
    world.bob.authenticator_set.create(type="recovery_codes", data={})
    answer = world.client(world.bob).get("/jobs/")
    assert (answer.status_code, answer["Location"]) == (302, "/accounts/2fa/")


@pytest.mark.parametrize("days", [0, -1, 367, "x"])
def test_a_life_that_is_none_is_named(world: World, days: Any) -> None:
    assert error(post(world.api(world.bob), "/tokens/", {"name": "x", "days": days}), 400)["param"] == "days"


def test_an_owner_deletes_by_name(world: World) -> None:
    api = world.api(world.alice)
    delete = lambda name: api.delete(f"{V1}/organisation/", json.dumps({"confirm": name}), content_type="application/json")  # noqa: E731
    assert error(delete("Summs"), 400)["param"] == "confirm"
    assert delete("Sums").status_code == 202
    assert api.get(f"{V1}/me/").status_code == 401
