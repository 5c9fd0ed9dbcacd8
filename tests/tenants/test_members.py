from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tenants import members, tokens
from tenants.access import Forbidden, Refused
from tenants.models import AuditEntry, Invitation, Membership, Role, User
from tests.portal.world import NOW, PASSWORD, World


def member(world: World, user: User) -> Membership:
    return world.sums.memberships.get(user=user)


def invited(world: World, by: User | None = None, email: str = "dora@example.org", role: str = Role.MEMBER) -> tuple[Invitation, str]:
    secrets: list[str] = []
    found = members.invite(world.sums, by or world.alice, email, role, NOW, lambda _, secret: secrets.append(secret) or "https://x/")
    return found, secrets[0]


@pytest.fixture(autouse=True)
def mails_go_at_once(django_capture_on_commit_callbacks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenants.members.transaction.on_commit", lambda send, robust=False: send())


def dora() -> User:
    return User.objects.create_user("dora@example.org", PASSWORD)


def test_an_invited_person_joins_with_the_role_of_the_invitation(world: World, mailoutbox: list) -> None:
    invitation, secret = invited(world, role=Role.VIEWER)
    assert (mailoutbox[0].to, "https://x/" in mailoutbox[0].body) == (["dora@example.org"], True)
    found = members.find_invitation(invitation.public_id, secret, NOW)
    assert members.accept(found, dora(), NOW).role == Role.VIEWER


def test_an_invitation_is_for_its_address_only(world: World) -> None:
    invitation, _ = invited(world)
    with pytest.raises(Forbidden, match=r"dora@example\.org"):
        members.accept(invitation, world.charlie, NOW)


def test_an_invitation_works_once(world: World) -> None:
    invitation, secret = invited(world)
    members.accept(invitation, dora(), NOW)
    assert members.find_invitation(invitation.public_id, secret, NOW) is None
    with pytest.raises(Refused):
        members.accept(invitation, User.objects.get(email="dora@example.org"), NOW)


@pytest.mark.parametrize("what", ["week", "secret", "withdrawn", "replaced", "deleted"])
def test_a_link_that_is_no_more_opens_nothing(world: World, what: str) -> None:
    invitation, secret = invited(world)
    if what == "withdrawn":
        members.withdraw(world.sums, world.alice, invitation, NOW)
    if what == "replaced":
        invited(world)
    if what == "deleted":
        world.sums.deleted_at = NOW
        world.sums.save()
    later = NOW + timedelta(days=7) if what == "week" else NOW
    assert members.find_invitation(invitation.public_id, "x" if what == "secret" else secret, later) is None


def test_the_secret_of_an_invitation_is_not_stored(world: World) -> None:
    invitation, secret = invited(world)
    assert secret not in str(Invitation.objects.filter(pk=invitation.pk).values())


@pytest.mark.parametrize("email", ["", "dora", "a@b", "dora@example.org, eve@example.org", "x" * 300 + "@example.org"])
def test_an_address_that_is_none_is_named(world: World, email: str) -> None:
    with pytest.raises(Refused) as refused:
        invited(world, email=email)
    assert refused.value.field == "email"


def test_a_member_is_not_invited_again(world: World) -> None:
    with pytest.raises(Refused, match="member already"):
        invited(world, email="BOB@example.org")


@pytest.mark.parametrize("who", ["bob", "vera", "charlie"])
def test_only_admins_invite(world: World, who: str) -> None:
    with pytest.raises(Forbidden):
        invited(world, by=getattr(world, who))


def test_an_admin_makes_no_owner(world: World) -> None:
    members.change_role(world.sums, world.alice, member(world, world.bob), Role.ADMIN)
    with pytest.raises(Forbidden):
        invited(world, by=world.bob, role=Role.OWNER)
    with pytest.raises(Forbidden):
        members.change_role(world.sums, world.bob, member(world, world.vera), Role.OWNER)
    with pytest.raises(Forbidden):
        members.remove(world.sums, world.bob, member(world, world.alice), NOW)


def leave(world: World) -> None:
    members.remove(world.sums, world.alice, member(world, world.alice), NOW)


def step_down(world: World) -> None:
    members.change_role(world.sums, world.alice, member(world, world.alice), Role.ADMIN)


@pytest.mark.parametrize("act", [leave, step_down])
def test_the_last_owner_stays(world: World, act: Callable[[World], None]) -> None:
    with pytest.raises(Refused, match="last owner"):
        act(world)
    assert member(world, world.alice).role == Role.OWNER


def test_one_of_two_owners_may_go(world: World) -> None:
    members.change_role(world.sums, world.alice, member(world, world.bob), Role.OWNER)
    members.remove(world.sums, world.alice, member(world, world.alice), NOW)
    assert [m.role for m in world.sums.memberships.filter(user=world.bob)] == [Role.OWNER]


def test_handing_over_makes_the_giver_an_admin(world: World) -> None:
    members.transfer(world.sums, world.alice, member(world, world.bob))
    assert (member(world, world.bob).role, member(world, world.alice).role) == (Role.OWNER, Role.ADMIN)


def test_only_owners_hand_over(world: World) -> None:
    with pytest.raises(Forbidden):
        members.transfer(world.sums, world.bob, member(world, world.vera))


def test_the_tokens_of_who_left_never_come_back(world: World) -> None:
    token, _ = tokens.issue(world.sums, world.bob, "x", NOW)
    members.remove(world.sums, world.alice, member(world, world.bob), NOW)
    Membership.objects.create(tenant=world.sums, user=world.bob)
    token.refresh_from_db()
    assert token.revoked_at == NOW


def test_who_requires_a_second_factor_has_one(world: World) -> None:
    with pytest.raises(Refused) as refused:
        members.change_tenant(world.sums, world.alice, require_mfa=True)
    assert refused.value.field == "require_mfa"


def test_a_viewer_changes_nothing(world: World) -> None:
    with pytest.raises(Forbidden):
        members.change_tenant(world.sums, world.vera, name="Mine")


@pytest.mark.parametrize("name", ["", " ", "a\x00b", "x" * 101])
def test_a_name_that_is_none_is_refused(world: World, name: str) -> None:
    with pytest.raises(Refused) as refused:
        members.change_tenant(world.sums, world.alice, name=name)
    assert refused.value.field == "name"


def test_what_is_done_to_members_is_in_the_log_of_their_tenant_alone(world: World) -> None:
    invitation, _ = invited(world)
    members.accept(invitation, dora(), NOW)
    members.change_role(world.sums, world.alice, world.sums.memberships.get(user__email="dora@example.org"), Role.ADMIN)
    members.remove(world.sums, world.alice, member(world, world.vera), NOW)
    assert list(world.sums.audit.values_list("action", "target_name")) == [
        ("member.removed", "vera@example.org"),
        ("member.role_changed", "dora@example.org"),
        ("member.joined", "dora@example.org"),
        ("member.invited", "dora@example.org"),
        ("organisation.created", "Sums"),
    ]
    assert AuditEntry.objects.filter(tenant=world.other).count() == 1


def test_an_entry_of_the_log_is_never_changed(world: World) -> None:
    entry = world.sums.audit.first()
    with pytest.raises(TypeError):
        entry.save()
