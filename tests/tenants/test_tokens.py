from __future__ import annotations

from datetime import timedelta

import pytest

from tenants import tokens
from tenants.models import ApiToken, Membership, Role
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
