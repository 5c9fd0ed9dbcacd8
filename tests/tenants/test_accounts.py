from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.test import Client

from tenants import actions, tokens
from tenants.access import Forbidden
from tenants.middleware import SESSION_KEY
from tenants.models import Membership, Role, Tenant, User
from tests.portal.world import NOW, PASSWORD, World

SIGN_UP = {"email": "Dora.Lee@Example.org", "password1": "a long sentence", "password2": "a long sentence"}


def test_signing_up_gives_an_own_organisation(db: None) -> None:
    Client().post("/accounts/signup/", SIGN_UP)
    membership = Membership.objects.get(user__email="dora.lee@example.org")
    assert (membership.tenant.name, membership.role) == ("Dora Lee", Role.OWNER)


def test_signing_up_with_a_taken_address_makes_nothing(world: World) -> None:
    before = Tenant.objects.count()
    Client().post("/accounts/signup/", {**SIGN_UP, "email": "ALICE@example.org"})
    assert (User.objects.filter(email__iexact="alice@example.org").count(), Tenant.objects.count()) == (1, before)


def test_no_account_without_an_organisation(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(user: User) -> None:
        raise IntegrityError("full")

    monkeypatch.setattr("tenants.adapter.ensure_own_tenant", fail)
    with pytest.raises(IntegrityError):
        Client().post("/accounts/signup/", SIGN_UP)
    assert not User.objects.exists()


def test_addresses_that_differ_in_case_are_one(world: World) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.create(email="ALICE@example.org")


def test_who_was_made_on_the_machine_awaits_no_mail(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    call_command("createsuperuser", "--no-input", "--email", "Ops@example.org", stdout=StringIO())
    assert Client().post("/accounts/login/", {"login": "ops@example.org", "password": PASSWORD})["Location"] == "/"


def test_a_person_logs_in_by_e_mail(world: World) -> None:
    client = Client()
    client.post("/accounts/login/", {"login": "Alice@example.org", "password": PASSWORD})
    assert client.session["_auth_user_id"] == str(world.alice.pk)


def tenant_seen_by(client: Client) -> str:
    return client.get("/api/v1/me/").json()["tenant"]["name"]


def test_the_session_chooses_among_ones_own_tenants(world: World) -> None:
    second = actions.create_tenant(world.alice, "Second")
    client = world.client(world.alice)
    session = client.session
    session[SESSION_KEY] = second.public_id
    session.save()
    assert tenant_seen_by(client) == "Second"


def test_a_session_naming_a_strangers_tenant_falls_back_to_ones_own(world: World) -> None:
    client = world.client(world.charlie)
    session = client.session
    session[SESSION_KEY] = world.sums.public_id
    session.save()
    assert tenant_seen_by(client) == "Other"


def test_a_membership_that_ended_closes_the_session_s_view(world: World) -> None:
    client = world.client(world.bob)
    Membership.objects.filter(user=world.bob).delete()
    assert client.get("/api/v1/me/").status_code in (401, 403)


def test_a_viewer_may_not_make_tokens(world: World) -> None:
    with pytest.raises(Forbidden):
        actions.create_token(world.sums, world.vera, "x", NOW)


def test_a_stranger_may_not_make_tokens(world: World) -> None:
    with pytest.raises(Forbidden):
        actions.create_token(world.sums, world.charlie, "x", NOW)


def test_a_member_revokes_his_own_token_only(world: World) -> None:
    own, _ = actions.create_token(world.sums, world.bob, "x", NOW)
    hers, _ = actions.create_token(world.sums, world.alice, "y", NOW)
    assert actions.revoke_token(world.sums, world.bob, own, NOW)
    with pytest.raises(Forbidden):
        actions.revoke_token(world.sums, world.bob, hers, NOW)


def test_an_owner_revokes_anybodys(world: World) -> None:
    his, text = actions.create_token(world.sums, world.bob, "x", NOW)
    actions.revoke_token(world.sums, world.alice, his, NOW)
    with pytest.raises(tokens.BadToken):
        tokens.check(text, NOW)


def seed(*words: str) -> dict:
    out = StringIO()
    call_command("seed_tenant", "--email", "demo@example.org", "--password", PASSWORD, "--name", "Demo", *words, stdout=out)
    return json.loads(out.getvalue())


def test_seeding_twice_gives_the_same_tenant(db: None) -> None:
    assert seed()["tenant"] == seed()["tenant"]
    assert (User.objects.count(), Tenant.objects.get().name) == (1, "Demo")


def test_a_seeded_person_can_log_in(db: None) -> None:
    seed()
    assert Client().login(email="demo@example.org", password=PASSWORD)


def test_seeding_again_replaces_the_token(db: None) -> None:
    from django.utils import timezone

    first, second = seed("--token")["token"], seed("--token")["token"]
    assert tokens.check(second, timezone.now()).tenant.name == "Demo"
    with pytest.raises(tokens.BadToken):
        tokens.check(first, timezone.now())
