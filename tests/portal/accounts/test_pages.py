from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from tenants import members
from tenants.models import Membership, Role, Tenant, User
from tests.portal.world import PASSWORD, World


def text(answer: Any) -> str:
    return answer.content.decode()


def test_an_owner_sees_and_saves_the_organisations_name(world: World) -> None:
    pages = world.client(world.alice)
    assert pages.post("/settings/", {"name": "Sums and more"}).status_code == 302
    assert "Sums and more" in text(pages.get("/settings/"))


def test_a_refused_rule_stands_beside_its_field(world: World) -> None:
    answer = world.client(world.alice).post("/settings/", {"name": "Sums", "require_mfa": "on"})
    assert (answer.status_code, "lock yourself out" in text(answer)) == (422, True)


def test_an_admin_who_saves_does_not_switch_the_owners_rule_off(world: World) -> None:
    Membership.objects.filter(user=world.bob).update(role=Role.ADMIN)
    world.bob.authenticator_set.create(type="totp", data={})
    Tenant.objects.filter(pk=world.sums.pk).update(require_mfa=True)
    assert world.client(world.bob).post("/settings/", {"name": "New"}).status_code == 302
    world.sums.refresh_from_db()
    assert (world.sums.name, world.sums.require_mfa) == ("New", True)


@pytest.mark.parametrize("path", ["/settings/members/", "/settings/delete/", "/settings/"])
def test_a_viewer_looks_and_finds_nothing_to_send(world: World, path: str) -> None:
    answer = world.client(world.vera).get(path)
    assert answer.status_code == 200
    assert not any(word in text(answer) for word in ("Send invitation", "Delete for good", "Save</button>", "Make owner"))


def test_the_log_is_for_admins(world: World) -> None:
    world.reward()
    assert world.client(world.bob).get("/settings/audit/").status_code == 403
    page = text(world.client(world.alice).get("/settings/audit/?noun=reward"))
    assert "created the reward" in page
    assert "organisation.created" in text_of_stream(world.client(world.alice).get("/settings/audit.csv"))


def test_the_log_tells_its_details_in_words(world: World) -> None:
    facts = {"scopes": ["jobs:read", "jobs:write"], "expires_at": "2026-02-01T08:30:00+00:00", "limits": {"daily_stop": None}, "mfa": True}
    world.sums.audit.create(action="token.created", actor_email="a@example.org", details=facts)
    client = world.client(world.alice)
    for shown in (text(client.get("/settings/audit/?noun=token")), text_of_stream(client.get("/settings/audit.csv"))):
        told = ("scopes: jobs:read, jobs:write", "expires at: 2026-02-01 08:30 UTC", "limits: daily stop none", "mfa: yes")
        assert all(words in shown for words in told), shown


@pytest.mark.parametrize("filed", [True, False])
def test_an_invitation_is_on_its_way_or_to_be_handed_over_never_both(world: World, settings: Any, filed: bool) -> None:
    if filed:
        settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
        settings.EMAIL_FILE_PATH = settings.STATE / "mail"
    answer = world.client(world.alice).post("/settings/members/", {"email": "dora@example.org", "role": "viewer"}, follow=True)
    page = text(answer)
    assert ("is on its way to dora@example.org" in page, "hand this link over" in page) == (not filed, filed)


def text_of_stream(answer: Any) -> str:
    return b"".join(answer.streaming_content).decode()


def test_a_name_that_looks_like_a_formula_is_none_in_the_csv(world: World) -> None:
    Tenant.objects.filter(pk=world.sums.pk).update(name="Sums")
    world.sums.audit.create(action="reward.created", actor_email="=cmd()")
    assert "'=cmd()" in text_of_stream(world.client(world.alice).get("/settings/audit.csv"))


def test_a_person_is_invited_signs_up_and_joins(world: World, mailoutbox: list, django_capture_on_commit_callbacks) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        world.client(world.alice).post("/settings/members/", {"email": "dora@example.org", "role": "viewer"})
    link = mailoutbox[0].body.split("http://testserver")[1].split()[0]
    assert f"/accounts/signup/?next={link}" in text(Client().get(link))
    pages = world.client(User.objects.create_user("dora@example.org", PASSWORD))
    assert "Join as dora@example.org" in text(pages.get(link))
    assert pages.post(link)["Location"] == "/"
    assert "Sums" in text(pages.get("/"))
    assert pages.get(link).status_code == 404


def test_an_invitation_for_another_address_tells_so_and_joins_nobody(
    world: World, mailoutbox: list, django_capture_on_commit_callbacks
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        world.client(world.alice).post("/settings/members/", {"email": "dora@example.org", "role": "viewer"})
    link = mailoutbox[0].body.split("http://testserver")[1].split()[0]
    pages = world.client(world.charlie)
    assert "The invitation is for dora@example.org" in text(pages.get(link))
    assert pages.post(link).status_code == 403
    assert not world.sums.memberships.filter(user=world.charlie).exists()


def test_a_person_makes_a_second_organisation_and_stands_in_it(world: World) -> None:
    pages = world.client(world.alice)
    pages.post("/organisations/new/", {"name": "Second"})
    assert pages.get("/api/v1/me/").json()["tenant"]["name"] == "Second"


def test_a_person_without_an_organisation_makes_one(world: World) -> None:
    world.bob.memberships.all().delete()
    pages = world.client(world.bob)
    assert "/organisations/new/" in text(pages.get("/"))
    assert pages.post("/organisations/new/", {"name": "Mine"}).status_code == 302
    assert pages.get("/").status_code == 200


def test_a_member_leaves_and_sees_nothing_more(world: World) -> None:
    pages = world.client(world.bob)
    assert pages.post("/settings/leave/").status_code == 302
    assert pages.get("/jobs/").status_code == 403


def test_the_last_owner_is_told_why_she_stays(world: World) -> None:
    answer = world.client(world.alice).post("/settings/leave/", follow=True)
    assert "last owner stays" in text(answer)


def test_one_leaves_a_suspended_organisation_too(world: World) -> None:
    Tenant.objects.filter(pk=world.sums.pk).update(suspended_at="2026-01-01T00:00Z")
    assert world.client(world.bob).post("/settings/leave/").status_code == 302
    assert not world.sums.memberships.filter(user=world.bob).exists()


def test_an_export_is_a_zip_for_admins(world: World) -> None:
    assert world.client(world.bob).post("/settings/export/").status_code == 403
    answer = world.client(world.alice).post("/settings/export/")
    assert answer["Content-Type"] == "application/zip"
    assert b"".join(answer.streaming_content)[:2] == b"PK"
    assert world.sums.audit.filter(action="organisation.exported").exists()


def test_an_organisation_is_deleted_by_writing_its_name(world: World) -> None:
    pages = world.client(world.alice, proven=True)
    assert pages.post("/settings/delete/", {"confirm": "Sum"}).status_code == 422
    assert pages.post("/settings/delete/", {"confirm": "Sums"})["Location"] == "/"
    assert not world.sums.memberships.exists()


def asked_again(pages: Client, path: str, body: dict[str, str]) -> str:
    """Where the password is asked for before ``path`` is done."""
    answer = pages.post(path, body)
    assert answer["Location"].startswith("/accounts/reauthenticate/?next=")
    page = text(pages.get(answer["Location"]))
    assert "Is it you?" in page
    assert "/reauthenticate/by-code/" not in page and "sign-in code" not in page  # whoever reads the mail is not yet the person
    return answer["Location"]


def test_a_deletion_waits_until_the_owner_has_proven_to_be_there(world: World) -> None:
    pages = world.client(world.alice)
    place = asked_again(pages, "/settings/delete/", {"confirm": "Sums"})
    pages.post(place, {"password": "not hers"})
    assert world.sums.memberships.exists()
    assert pages.post(place, {"password": PASSWORD})["Location"] == "/"
    assert not world.sums.memberships.exists()


def test_a_transfer_waits_for_the_same(world: World) -> None:
    pages = world.client(world.alice)
    bob = world.sums.memberships.get(user=world.bob)
    place = asked_again(pages, f"/settings/members/{bob.public_id}/owner/", {})
    bob.refresh_from_db()
    assert bob.role == Role.MEMBER
    assert pages.post(place, {"password": PASSWORD})["Location"] == "/settings/members/"
    bob.refresh_from_db()
    assert bob.role == Role.OWNER


def test_a_proof_is_good_for_five_minutes(world: World) -> None:
    pages = world.client(world.alice, proven=True)
    session = pages.session
    session["account_authentication_methods"][0]["at"] -= 301
    session.save()
    asked_again(pages, "/settings/delete/", {"confirm": "Sums"})


def test_a_browser_gets_no_further_by_the_api(world: World) -> None:
    bob = world.sums.memberships.get(user=world.bob)
    for proven, expected in ((False, (403, 403)), (True, (200, 202))):
        pages = world.client(world.alice, proven=proven)
        handed = pages.post(f"/api/v1/members/{bob.public_id}/owner/")
        world.sums.memberships.filter(user=world.alice).update(role=Role.OWNER)
        deleted = pages.delete("/api/v1/organisation/", {"confirm": "Sums"}, content_type="application/json")
        assert (handed.status_code, deleted.status_code) == expected
        if not proven:
            assert deleted.json()["error"]["code"] == "reauthentication_required"


def test_one_session_is_ended_and_no_other(world: World) -> None:
    here, there, third = (signed_in("alice@example.org") for _ in range(3))
    ended = world.alice.usersession_set.get(session_key=there.session.session_key)
    page = text(here.get("/accounts/sessions/"))
    assert (page.count("this one"), page.count(f"/settings/sessions/{ended.pk}/end/")) == (1, 1)
    assert signed_in("charlie@example.org").post(f"/settings/sessions/{ended.pk}/end/").status_code == 404
    assert here.post(f"/settings/sessions/{ended.pk}/end/")["Location"] == "/accounts/sessions/"
    assert [client.get("/jobs/").status_code for client in (here, there, third)] == [200, 302, 200]


def test_all_others_are_ended_at_once(world: World) -> None:
    here, there = signed_in("alice@example.org"), signed_in("alice@example.org")
    here.post("/accounts/sessions/")
    assert [client.get("/jobs/").status_code for client in (here, there)] == [200, 302]


def signed_in(email: str) -> Client:
    client = Client()
    assert client.post("/accounts/login/", {"login": email, "password": PASSWORD})["Location"] == "/"
    return client


@pytest.mark.parametrize("act", ["role", "remove", "owner"])
def test_what_is_refused_about_a_member_is_said_on_the_page(world: World, act: str) -> None:
    alice = world.sums.memberships.get(user=world.alice)
    answer = world.client(world.alice, proven=True).post(f"/settings/members/{alice.public_id}/{act}/", {"role": "viewer"}, follow=True)
    assert {
        "role": "alice@example.org keeps the role owner: the last owner stays",
        "remove": "alice@example.org stays: the last owner stays",
        "owner": "Nothing was handed over: you are the owner already",
    }[act] in text(answer)


def test_a_token_is_rotated_on_its_page(world: World) -> None:
    pages = world.client(world.bob)
    pages.post("/settings/tokens/new/", {"name": "x", "days": "90", "scopes": ["jobs:read"], "addresses": "10.0.0.0/8"})
    old = world.sums.api_tokens.get()
    answer = pages.post(f"/settings/tokens/{old.token_id}/rotate/", {"hours": "1"})
    assert (answer.status_code, "mrl_live_" in answer.context["secret"]) == (201, True)
    assert "rotated, ends soon" in text(pages.get("/settings/tokens/"))
    assert pages.post(f"/settings/tokens/{old.token_id}/rotate/", {"hours": "1"}).status_code == 422


def test_networks_that_are_none_stand_beside_their_field(world: World) -> None:
    order = {"name": "x", "days": "90", "scopes": ["jobs:read"], "addresses": "10.0.0/8"}
    answer = world.client(world.bob).post("/settings/tokens/new/", order)
    assert (answer.status_code, "is no address or network" in text(answer)) == (422, True)


def test_an_invitation_fills_its_address_into_the_sign_up(world: World, django_capture_on_commit_callbacks: Any) -> None:
    secrets: list[str] = []
    now = datetime.now(UTC)
    with django_capture_on_commit_callbacks(execute=True):
        invited = members.invite(
            world.sums, world.alice, "dora@example.org", Role.MEMBER, now, lambda _, secret: secrets.append(secret) or "x"
        )
    newcomer = Client()
    assert newcomer.get(f"/join/{invited.public_id}/{secrets[0]}/").status_code == 200
    page = newcomer.get("/accounts/signup/").content.decode()
    assert 'value="dora@example.org"' in page
    assert "dora@example.org" not in Client().get("/accounts/signup/").content.decode()
