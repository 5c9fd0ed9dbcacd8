from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache
from django.db import DatabaseError, connection
from django.test import Client

from portal import health, pulse
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import World


@pytest.fixture
def alive() -> None:
    for kind in pulse.KINDS:
        pulse.beat(kind, datetime.now(UTC))


def ready() -> tuple[int, dict]:
    answer = Client().get("/readyz")
    return answer.status_code, answer.json()


def test_a_whole_installation_is_ready(world: World, engine: FakeEngine, alive: None) -> None:
    assert ready() == (200, {"ok": True, "causes": {}, "degraded": {}})


def test_without_the_engine_pages_are_served_and_the_cause_is_said(world: World, engine: FakeEngine, alive: None) -> None:
    engine.down = True
    assert ready() == (200, {"ok": True, "causes": {}, "degraded": {"engine": "the engine does not answer"}})


def test_a_silent_process_is_named(world: World, engine: FakeEngine) -> None:
    pulse.beat("worker", datetime.now(UTC) - timedelta(seconds=100))
    degraded = ready()[1]["degraded"]
    assert degraded["worker"].startswith("was last heard 10")
    assert degraded["ingester"] == "was never heard"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_and_scrapers_need_not_know_the_sites_name(world: World, engine: FakeEngine, settings, path: str) -> None:
    settings.ALLOWED_HOSTS, settings.METRICS_TOKEN, settings.SECURE_SSL_REDIRECT = ["ml.example.org"], "scrapes", True
    inside = {"Host": "10.0.0.7:8800", "Authorization": "Bearer scrapes"}
    assert Client().get(path, headers=inside).status_code == 200
    assert Client().get("/jobs/", headers=inside, secure=True).status_code == 400


def broken(*_: object, **__: object) -> None:
    raise DatabaseError("gone: host db.internal")


def test_without_the_database_nobody_is_sent_here(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(connection, "cursor", broken)
        status, told = ready()
    assert (status, told["causes"]) == (503, {"database": "the database does not answer: DatabaseError"})
    assert "internal" not in str(told)


def test_without_the_cache_nobody_is_sent_here(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(type(cache._connections["default"] if hasattr(cache, "_connections") else cache), "set", broken)
        status, told = ready()
    assert (status, list(told["causes"])) == (503, ["cache"])


def test_a_database_that_is_not_migrated_is_not_ready(world: World, alive: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'console'")
    assert ready()[1]["causes"] == {"migrations": "1 migrations are not applied; run manage.py migrate"}


@pytest.mark.parametrize("check", [health.database, health.migrations, health.cache_answers])
def test_each_check_is_content_with_a_sound_installation(world: World, check: Callable[[], str]) -> None:
    assert check() == ""
