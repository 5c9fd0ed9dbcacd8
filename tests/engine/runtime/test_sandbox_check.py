from __future__ import annotations

import logging

import pytest

from engine import settings
from engine.rewards.sandbox import Strength, TooWeak
from engine.runtime.readiness import StartFailed
from engine.runtime.sandbox_check import strength_at_start


def holds(tier: str):
    async def prove(asked) -> Strength:
        assert asked.tier in ("auto", "weak")
        return Strength(tier=tier, landlock=4, seccomp=True, own_uid=False, refused={"bwrap": "bubblewrap is not installed"})

    return prove


def fails(error: Exception):
    async def prove(asked) -> Strength:
        raise error

    return prove


@pytest.mark.parametrize("tier", ["bwrap", "plain", "weak"])
async def test_what_holds_is_logged_and_shown(tier, caplog):
    caplog.set_level(logging.INFO)
    found = await strength_at_start(settings.load(), holds(tier))

    assert (found["tier"], found["refused"]) == (tier, {"bwrap": "bubblewrap is not installed"})
    assert f"reward sandbox: tier {tier}" in caplog.text


@pytest.mark.parametrize("error", [TooWeak("no Landlock here"), OSError("no process can be started")])
async def test_without_walls_an_engine_of_ones_own_starts_and_says_that_no_code_runs(error):
    assert await strength_at_start(settings.load(), fails(error)) == {"tier": "none", "refused": {"auto": str(error)}}


@pytest.mark.parametrize("tier", ["bwrap", "plain"])
async def test_production_starts_behind_landlock_and_seccomp(tier):
    assert (await strength_at_start(settings.load(production=True), holds(tier)))["tier"] == tier


async def test_production_refuses_a_machine_without_walls_with_the_fix():
    with pytest.raises(StartFailed, match=r"no Landlock here .*Linux 5\.13"):
        await strength_at_start(settings.load(production=True), fails(TooWeak("no Landlock here")))


async def test_production_refuses_a_sandbox_that_was_weakened_by_hand():
    with pytest.raises(StartFailed, match=r"too weak for production.*MARLAAS_REWARD_SANDBOX at auto"):
        await strength_at_start(settings.load(production=True, reward_sandbox="weak"), holds("weak"))


@pytest.mark.parametrize(("value", "production"), [("1", True), ("", False), ("0", False)])
def test_production_is_told_as_the_portal_is_told(monkeypatch, value, production):
    monkeypatch.setenv("MARLAAS_PRODUCTION", value)
    assert settings.load().production is production
