"""Seeds of second factors are sealed in the database and in the session; old ones go on, and a new site key shuts nobody out."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import SECRET_SESSION_KEY, TOTP, format_hotp_value, generate_totp_secret, hotp_value
from django.apps import apps
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from engine.sealed import CannotOpen, is_sealed
from portal.doctor.checks import World as Outside
from portal.doctor.checks import factors
from tenants.models import User
from tests.portal.api.test_key_rotation import replace_key
from tests.portal.world import PASSWORD, World

seal_all = import_module("portal.accounts.migrations.0001_seal_factors").seal_all
ACTIVATE = "/accounts/2fa/totp/activate/"


def code_of(seed: str) -> str:
    return format_hotp_value(hotp_value(seed, int(time.time()) // 30))


def stored() -> str:
    """All that the database holds of factors and sessions, the sessions' content as it is read."""
    sessions = [session.get_decoded() for session in Session.objects.all()]
    return str([list(Authenticator.objects.values("data")), sessions])


def plain(user: User) -> tuple[str, list[str]]:
    """An app and recovery codes as an earlier release stored them: its seed, and the codes."""
    seed = generate_totp_secret()
    Authenticator.objects.create(user=user, type=Authenticator.Type.TOTP, data={"secret": seed})
    row = Authenticator.objects.create(user=user, type=Authenticator.Type.RECOVERY_CODES, data={"seed": "ab" * 40, "used_mask": 5})
    return seed, RecoveryCodes(row).get_unused_codes()


def opens(user: User, seed: str, codes: list[str]) -> bool:
    """Whether both factors do what they did."""
    cache.clear()  # a code is good once
    app, recovery = (Authenticator.objects.get(user=user, type=kind) for kind in ("totp", "recovery_codes"))
    return TOTP(app).validate_code(code_of(seed)) and RecoveryCodes(recovery).get_unused_codes() == codes


def told() -> list[str]:
    return [finding.code for finding in factors(Outside())]


def test_an_app_is_set_up_and_used_and_its_seed_is_nowhere_to_be_read(world: World) -> None:
    browser = world.client(world.alice, proven=True)
    seed = browser.get(ACTIVATE).context["form"].secret
    offered = stored()
    assert browser.post(ACTIVATE, {"code": "000000"}).context["form"].secret == seed  # a slip costs no new scan
    assert browser.post(ACTIVATE, {"code": code_of(seed)}).status_code == 302

    assert seed not in offered + stored()
    assert all(is_sealed(row.data.get("secret") or row.data["seed"]) for row in Authenticator.objects.all())
    assert SECRET_SESSION_KEY not in stored()
    assert Authenticator.objects.count() == 2

    cache.clear()
    newcomer = Client()
    newcomer.post("/accounts/login/", {"login": world.alice.email, "password": PASSWORD})
    assert newcomer.post("/accounts/2fa/authenticate/", {"code": code_of(seed)}).status_code == 302
    assert newcomer.get("/jobs/").status_code == 200


def test_what_an_earlier_release_stored_is_sealed_and_goes_on(world: World) -> None:
    seed, codes = plain(world.alice)
    assert opens(world.alice, seed, codes)
    seal_all(apps, None)
    seal_all(apps, None)  # a migration that was cut off runs again
    assert (seed in stored(), "ab" * 40 in stored()) == (False, False)
    assert opens(world.alice, seed, codes)
    assert Authenticator.objects.get(type="recovery_codes").data["used_mask"] == 5


def test_a_new_key_shuts_nobody_out_and_the_earlier_one_can_go(world: World, settings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    seed, codes = plain(world.alice)
    seal_all(apps, None)
    replace_key(settings)
    assert (opens(world.alice, seed, codes), told()) == (True, ["factors_under_earlier_key"])

    call_command("reseal_factors")
    settings.SECRET_KEY_FALLBACKS = []
    assert "2 second factors" in capsys.readouterr().out
    assert (opens(world.alice, seed, codes), told()) == (True, ["ok"])


def test_a_key_that_went_too_early_is_told_and_opens_no_door(world: World, settings: Any) -> None:
    seed, codes = plain(world.alice)
    seal_all(apps, None)
    settings.SECRET_KEY = "n" * 60
    with pytest.raises(CannotOpen):
        opens(world.alice, seed, codes)
    with pytest.raises(CommandError, match="MARLAAS_SECRET_KEY_FALLBACKS"):
        call_command("reseal_factors")
    assert told() == ["factors_shut"]
