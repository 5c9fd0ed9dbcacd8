"""Fixtures of everything that needs Django: no service runs, the engine is a fake in memory, the channel layer too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portal import gateway
from tests.portal import world as worlds
from tests.portal.fake_engine import FakeEngine
from tests.support import app_role, sweeping


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A file, since consumers read in threads of their own and an SQLite in memory is one connection's."""
    from django.db import connections

    for connection in connections.all():
        if connection.vendor == "sqlite":
            connection.settings_dict["TEST"]["NAME"] = str(tmp_path_factory.mktemp("db") / "test.sqlite3")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """On PostgreSQL the tests are the role that the portal has in production. What a test has committed is swept away after it."""
    with django_db_blocker.unblock(), app_role.worn(), sweeping.installed():
        yield


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """No Valkey, no worker, quick passwords, an own blob store; tests marked ``stack`` or ``browser`` bring their services instead."""
    if any(map(request.node.get_closest_marker, ("stack", "browser"))):
        yield
        return
    from portal.celery import app

    settings: Any = request.getfixturevalue("settings")
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": str(tmp_path)}}
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.BLOBS_DIR = tmp_path / "blobs"
    settings.WHITENOISE_AUTOREFRESH = True  # else each client of each test walks all static files before its first request
    app.conf.update(task_always_eager=True, task_eager_propagates=True)
    yield


@pytest.fixture
def engine(settings: Any) -> Iterator[FakeEngine]:
    fake = FakeEngine(secret="test-secret")
    settings.ENGINE_URL, settings.ENGINE_SECRET, settings.ENGINE_TRANSPORT = "http://engine", fake.secret, fake.transport()
    gateway.forget()
    yield fake
    gateway.forget()


@pytest.fixture
def world(db: None, engine: FakeEngine) -> worlds.World:
    return worlds.build()
