from __future__ import annotations

import pytest

from engine.sealed import PREFIX, CannotOpen, Sealer, is_sealed

OURS = Sealer(bearer="what portal and engine share")
SECRET = "an honest secret of some length"


def test_what_is_sealed_says_nothing_and_opens_for_its_tenant():
    sealed = OURS.seal(SECRET, tenant="ten_a")

    assert is_sealed(sealed) and SECRET not in sealed
    assert OURS.open(sealed, tenant="ten_a") == SECRET
    assert Sealer(bearer="what portal and engine share").open(sealed, tenant="ten_a") == SECRET


def test_two_seals_of_one_secret_do_not_show_that_they_are_alike():
    assert OURS.seal(SECRET, tenant="ten_a") != OURS.seal(SECRET, tenant="ten_a")


def test_the_longest_secret_fits_into_a_spec_when_it_is_sealed():
    from engine.grader_spec import MAX_SEALED, MAX_SECRET

    assert len(OURS.seal("x" * MAX_SECRET, tenant="t" * 64)) <= MAX_SEALED


@pytest.mark.parametrize("tenant", ["ten_b", "", "ten_a/"])
def test_another_tenant_cannot_have_it_opened(tenant):
    with pytest.raises(CannotOpen):
        OURS.open(OURS.seal(SECRET, tenant="ten_a"), tenant=tenant)


def test_another_key_does_not_open_it():
    with pytest.raises(CannotOpen):
        Sealer(bearer="another").open(OURS.seal(SECRET, tenant="ten_a"), tenant="ten_a")


def test_a_secret_that_was_replaced_still_opens_what_it_sealed_and_seals_no_more():
    new = Sealer(bearer="the new one", earlier=("one before", OURS.bearer))
    assert new.open(OURS.seal(SECRET, tenant="ten_a"), tenant="ten_a") == SECRET
    assert Sealer(bearer="the new one").open(new.seal(SECRET, tenant="ten_a"), tenant="ten_a") == SECRET
    with pytest.raises(CannotOpen):
        new.open(OURS.seal(SECRET, tenant="ten_a"), tenant="ten_b")


@pytest.mark.parametrize("text", [PREFIX, PREFIX + "!", PREFIX + "AAAA", PREFIX + "A" * 80])
def test_garbage_is_refused_and_raises_nothing_else(text):
    with pytest.raises(CannotOpen):
        OURS.open(text, tenant="ten_a")


def test_every_changed_character_is_noticed():
    sealed = OURS.seal(SECRET, tenant="ten_a")
    place = len(PREFIX) + 20
    changed = sealed[:place] + ("A" if sealed[place] != "A" else "B") + sealed[place + 1 :]
    with pytest.raises(CannotOpen):
        OURS.open(changed, tenant="ten_a")


def test_a_secret_of_an_earlier_release_is_itself():
    assert OURS.open(SECRET, tenant="ten_a") == SECRET


def test_a_sealer_does_not_show_its_key():
    assert "share" not in repr(OURS)
