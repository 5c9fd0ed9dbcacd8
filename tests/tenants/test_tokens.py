from __future__ import annotations

from datetime import timedelta

import pytest

from tenants import actions, tokens
from tenants.access import Forbidden
from tenants.models import ApiToken, AuditEntry, Membership, Role
from tests.portal.world import NOW, World


def issued(world: World, **more) -> tuple[ApiToken, str]:
    return tokens.issue(world.sums, world.bob, "laptop", NOW, **more)


def code_of(text: str, now=NOW) -> str:
    with pytest.raises(tokens.BadToken) as refused:
        tokens.check(text, now)
    return refused.value.code


def test_a_token_opens_its_tenant_for_its_person(world: World) -> None:
    access = tokens.check(issued(world)[1], NOW)
    assert (access.tenant, access.user, access.role) == (world.sums, world.bob, Role.MEMBER)


def test_the_text_is_not_stored(world: World) -> None:
    token, text = issued(world)
    secret = text.rpartition("_")[2]
    assert secret not in str(ApiToken.objects.filter(pk=token.pk).values())


def test_a_token_lives_ninety_days_by_default(world: World) -> None:
    _, text = issued(world)
    tokens.check(text, NOW + timedelta(days=89))
    assert code_of(text, NOW + timedelta(days=90)) == "expired"


def test_one_changed_letter_fails_the_checksum_without_a_query(world: World, django_assert_num_queries) -> None:
    _, text = issued(world)
    other = "b" if text[20] == "a" else "a"
    with django_assert_num_queries(0):
        assert code_of(text[:20] + other + text[21:]) == "malformed"


@pytest.mark.parametrize("text", ["", "mrl_", "Bearer x", "mrl_" + "a" * 52, "mrl_aaaaaaaaaaaa_" + "ä" * 39, "x" * 100_000])
def test_what_is_no_token_is_malformed(world: World, text: str) -> None:
    assert code_of(text) == "malformed"


def test_a_right_id_with_another_secret_is_unknown(world: World) -> None:
    token, _ = issued(world)
    secret = "a" * 32
    assert code_of(f"mrl_{token.token_id}_{secret}{tokens._checksum(token.token_id, secret)}") == "unknown"


def test_a_revoked_token_stops_at_once(world: World) -> None:
    token, text = issued(world)
    assert tokens.revoke(token, NOW)
    assert code_of(text) == "revoked"


def test_revoking_twice_changes_nothing(world: World) -> None:
    token, _ = issued(world)
    tokens.revoke(token, NOW)
    assert not tokens.revoke(token, NOW + timedelta(hours=1))
    assert ApiToken.objects.get(pk=token.pk).revoked_at == NOW


def test_a_token_ends_with_its_persons_membership(world: World) -> None:
    _, text = issued(world)
    Membership.objects.filter(user=world.bob).delete()
    assert code_of(text) == "no_member"


def test_a_token_ends_when_its_person_is_switched_off(world: World) -> None:
    _, text = issued(world)
    world.bob.is_active = False
    world.bob.save(update_fields=["is_active"])
    assert code_of(text) == "no_member"


def test_a_viewers_token_never_writes(world: World) -> None:
    _, text = tokens.issue(world.sums, world.vera, "look", NOW)
    assert not any(scope.endswith(":write") for scope in tokens.check(text, NOW).scopes)


def test_use_is_recorded_once_a_minute(world: World, django_assert_num_queries) -> None:
    token, text = issued(world)
    tokens.check(text, NOW)
    with django_assert_num_queries(2):  # the token, the membership: nothing is written
        tokens.check(text, NOW + timedelta(seconds=30))
    assert ApiToken.objects.get(pk=token.pk).last_used_at == NOW


def test_tokens_survive_a_rotated_site_key(world: World, settings) -> None:
    _, text = issued(world)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another" * 10
    assert tokens.check(text, NOW).user == world.bob


def test_a_stolen_table_does_not_open_under_another_site_key(world: World, settings) -> None:
    _, text = issued(world)
    settings.SECRET_KEY = "another" * 10
    assert code_of(text) == "unknown"


def test_a_token_tells_scanners_what_it_is(world: World) -> None:
    assert issued(world)[1].startswith("mrl_live_")


def test_a_token_of_an_earlier_release_still_opens(world: World) -> None:
    _, text = issued(world)
    assert tokens.check(text.replace("mrl_live_", "mrl_"), NOW).user == world.bob


def test_an_id_that_does_not_exist_costs_the_same_comparison(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr(tokens, "_matches", lambda secret, wanted: compared.append(wanted) or False)
    _, text = issued(world)
    nobody = f"mrl_live_{'a' * 12}_{'a' * 32}{tokens._checksum('a' * 12, 'a' * 32)}"
    assert (code_of(text), code_of(nobody), len(compared)) == ("unknown", "unknown", 2)


@pytest.mark.parametrize("address", ["203.0.113.9", "::ffff:203.0.113.9", "2001:db8::5"])
def test_a_token_with_networks_opens_from_within(world: World, address: str) -> None:
    _, text = issued(world, addresses=tokens.networks("203.0.113.0/24, 2001:db8::/32"))
    assert tokens.check(text, NOW, address=address).user == world.bob


@pytest.mark.parametrize("address", ["203.0.114.9", "", "unix", "2001:db9::5"])
def test_a_token_with_networks_does_not_open_from_elsewhere(world: World, address: str) -> None:
    _, text = issued(world, addresses=tokens.networks("203.0.113.0/24\n2001:db8::/32"))
    with pytest.raises(tokens.BadToken) as refused:
        tokens.check(text, NOW, address=address)
    assert refused.value.code == "address"


def test_a_network_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"203\.0\.113"):
        tokens.networks("10.0.0.0/8, 203.0.113")


def test_a_rotated_token_goes_on_for_the_overlap(world: World) -> None:
    old, text = issued(world, scopes=("jobs:read",), addresses=("10.0.0.0/8",))
    new, fresh = actions.rotate_token(world.sums, world.bob, old, NOW, overlap=timedelta(hours=2))
    assert (new.scopes, new.addresses, new.expires_at) == (old.scopes, old.addresses, NOW + timedelta(days=90))
    near = {"address": "10.1.1.1"}
    tokens.check(text, NOW + timedelta(hours=1), **near)
    tokens.check(fresh, NOW + timedelta(hours=3), **near)
    assert code_of(text, NOW + timedelta(hours=2)) == "expired"


def test_a_token_is_rotated_once(world: World) -> None:
    old, _ = issued(world)
    actions.rotate_token(world.sums, world.bob, old, NOW)
    with pytest.raises(ValueError, match="rotated before"):
        actions.rotate_token(world.sums, world.bob, old, NOW)
    assert ApiToken.objects.count() == 2


def test_nobody_rotates_another_persons_token(world: World) -> None:
    old, _ = issued(world)
    with pytest.raises(Forbidden):
        actions.rotate_token(world.sums, world.alice, old, NOW)


def test_a_leaked_token_is_ended_by_whoever_found_it(world: World, mailoutbox: list, django_capture_on_commit_callbacks) -> None:
    _, text = issued(world)
    with django_capture_on_commit_callbacks(execute=True):
        assert actions.report_leak(text, "https://example.org/paste", NOW)
    assert code_of(text) == "revoked"
    assert (mailoutbox[0].to, text in mailoutbox[0].body) == (["bob@example.org"], False)
    assert "https://example.org/paste" in mailoutbox[0].body
    assert AuditEntry.objects.get(action="token.leaked").details == {"where": "https://example.org/paste"}


def test_what_is_no_token_cannot_be_reported(world: World) -> None:
    assert actions.report_leak("mrl_live_nothing", "", NOW) is None


def test_what_leaks_by_default_can_neither_make_tokens_nor_members(world: World) -> None:
    token, _ = actions.create_token(world.sums, world.bob, "x", NOW)
    assert set(token.scopes) == set(tokens.SCOPES) - tokens.POWERFUL


def test_each_act_on_a_token_is_in_the_audit_log(world: World) -> None:
    token, _ = actions.create_token(world.sums, world.bob, "x", NOW)
    actions.rotate_token(world.sums, world.bob, token, NOW)
    actions.revoke_token(world.sums, world.alice, token, NOW)
    seen = AuditEntry.objects.filter(tenant=world.sums, target=token.token_id).values_list("action", "actor_email")
    assert list(seen) == [
        ("token.revoked", "alice@example.org"),
        ("token.rotated", "bob@example.org"),
        ("token.created", "bob@example.org"),
    ]
