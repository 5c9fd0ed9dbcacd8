"""The doctor names each of many induced faults, with the fix, and finds nothing wrong with a sound installation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, connections

from portal import pulse
from portal.doctor import checks
from portal.doctor.checks import World, examine
from tests.portal.fake_engine import FakeEngine
from tests.support.app_role import taken_off

NOW = datetime(2026, 1, 1, tzinfo=UTC)  # the fake engine's, before anything has happened
GB = 1000**3


class Patient:
    """A sound installation that a test makes ill. ``world``: what the checks see of the outside."""

    def __init__(self, engine: FakeEngine, settings: Any, patch: pytest.MonkeyPatch):
        self.engine, self.settings, self.patch = engine, settings, patch
        self.outside: dict[str, Any] = {
            "now": lambda: NOW,
            "disk_usage": lambda _: SimpleNamespace(total=100 * GB, free=50 * GB),
            "stripe": lambda: "live",
            "publish": lambda: None,
        }
        settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
        settings.DEFAULT_FROM_EMAIL = "MARLaaS <ml@example.org>"
        for kind in pulse.KINDS:
            pulse.beat(kind, NOW)

    def produces(self, **changes: Any) -> None:
        """In production, with everything that the settings ask for."""
        whole = {
            "production": True,
            "trusted_origins": ("https://ml.example.org",),
            "allowed_hosts": ("ml.example.org",),
            "trusted_proxies": 1,
        }
        self.settings.ENV = self.settings.ENV.model_copy(update={**whole, **changes})

    def raises(self, error: Exception) -> Callable[..., Any]:
        def fail(*_: Any, **__: Any) -> None:
            raise error

        return fail


@pytest.fixture
def patient(db: None, engine: FakeEngine, settings: Any) -> Iterator[Patient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "_postgres", lambda: iter(()))  # the tests' role is what it is
        yield Patient(engine, settings, patch)


def findings(patient: Patient) -> dict[str, Any]:
    return {finding.code: finding for finding in examine(World(**patient.outside)) if finding.level != "ok"}


def gone_database(p: Patient) -> None:
    p.patch.setattr(connection, "cursor", p.raises(DatabaseError("connection refused")))


def sqlite_in_production(p: Patient) -> None:
    p.produces()
    p.patch.setattr(connection, "vendor", "sqlite")


def unmigrated(p: Patient) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'console'")


def no_broker(p: Patient) -> None:
    p.settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}}


def forgetful_broker(p: Patient) -> None:
    p.settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}


def no_queue(p: Patient) -> None:
    p.outside["publish"] = p.raises(ConnectionError("OOM command not allowed"))


def silent(kind: str) -> Callable[[Patient], None]:
    return lambda p: pulse.beat(kind, NOW - timedelta(minutes=3))


def set_on(name: str, value: Any) -> Callable[[Patient], None]:
    return lambda p: setattr(p.engine, name, value)


def overviewed(**overrides: Any) -> Callable[[Patient], None]:
    return lambda p: p.engine.overrides.update(overrides)


def old_engine(p: Patient) -> None:
    p.patch.setattr("tests.portal.fake_engine._ROUTES", ())


def read_only_blobs(p: Patient) -> None:
    in_the_way = Path(p.settings.STATE) / "in-the-way"
    in_the_way.write_text("")
    p.settings.BLOBS_DIR = in_the_way / "blobs"


def disk(free: int) -> Callable[[Patient], None]:
    return lambda p: p.outside.update(disk_usage=lambda _: SimpleNamespace(total=100 * GB, free=free))


def no_mail(p: Patient) -> None:
    p.settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    p.settings.EMAIL_HOST, p.settings.EMAIL_PORT, p.settings.EMAIL_USE_TLS = "127.0.0.1", 1, False


def setting(name: str, value: Any) -> Callable[[Patient], None]:
    return lambda p: setattr(p.settings, name, value)


def test_key_in_production(p: Patient) -> None:
    p.produces()
    p.settings.STRIPE_KEY = "sk_test_x"


def refused_key(p: Patient) -> None:
    p.settings.STRIPE_KEY = "sk_live_x"
    p.outside["stripe"] = p.raises(ConnectionError("Invalid API Key provided"))


def production(**changes: Any) -> Callable[[Patient], None]:
    return lambda p: p.produces(**changes)


def no_token(p: Patient) -> None:
    p.produces()
    p.settings.METRICS_TOKEN = ""


WEAK = {"sandbox": {"tier": "none"}}
DEAD = {"workers": [{"name": "sampler 0", "alive": False}]}
FAULTS = [
    ("database_away", gone_database, "start it"),
    ("sqlite_in_production", sqlite_in_production, "DATABASE_URL"),
    ("not_migrated", unmigrated, "manage.py migrate"),
    ("broker_away", no_broker, "MARLAAS_REDIS_URL"),
    ("broker_forgets", forgetful_broker, "raise its maxmemory"),
    ("queue_refuses", no_queue, "raise its maxmemory"),
    ("ingester_silent", silent("ingester"), "manage.py ingest"),
    ("worker_silent", silent("worker"), "celery"),
    ("engine_away", set_on("down", True), "MARLAAS_ENGINE_URL"),
    ("wrong_secret", set_on("secret", "another"), "MARLAAS_ENGINE_SECRET"),
    ("engine_not_ready", set_on("stage", "loading the base model"), "engine-launcher.log"),
    ("engine_too_old", old_engine, "same release"),
    ("sandbox_weak", overviewed(**WEAK), "Landlock"),
    ("clocks_apart", overviewed(at="2026-01-01T00:05:00+00:00"), "timesyncd"),
    ("admission_closed", overviewed(admission="drain"), "/console/"),
    ("worker_down", overviewed(**DEAD), "engine-*.log"),
    ("another_model", overviewed(model="smollm2-135m"), "MARLAAS_MODEL=smollm2-135m"),
    ("blobs_not_writable", read_only_blobs, "user write there"),
    ("disk_full", disk(1 * GB), "remove ended jobs"),
    ("disk_filling", disk(8 * GB), "before it is full"),
    ("engine_disk_full", overviewed(disk={"free_bytes": 1 * GB, "total_bytes": 100 * GB}), "remove ended jobs"),
    ("engine_disk_filling", overviewed(disk={"free_bytes": 8 * GB, "total_bytes": 100 * GB}), "before it is full"),
    ("mail_filed", setting("EMAIL_BACKEND", "django.core.mail.backends.filebased.EmailBackend"), "MARLAAS_EMAIL_URL"),
    ("mail_away", no_mail, "MARLAAS_EMAIL_URL"),
    ("mail_from_localhost", setting("DEFAULT_FROM_EMAIL", "MARLaaS <marlaas@localhost>"), "MARLAAS_EMAIL_FROM"),
    ("stripe_test_key", test_key_in_production, "live account"),
    ("stripe_refuses", refused_key, "MARLAAS_STRIPE_KEY"),
    ("python", lambda p: p.outside.update(python=(3, 10)), "3.11"),
    ("no_trusted_origin", production(trusted_origins=()), "MARLAAS_TRUSTED_ORIGINS=https://ml.example.org"),
    ("plain_origin", production(trusted_origins=("http://ml.example.org",)), "https://"),
    ("no_trusted_proxy", production(trusted_proxies=0), "MARLAAS_TRUSTED_PROXIES"),
    ("no_metrics_token", no_token, "MARLAAS_METRICS_TOKEN"),
    ("plain_engine", production(engine_url="http://8.8.8.8:8801"), "private network"),
]
test_key_in_production.__test__ = False  # type: ignore[attr-defined]


def test_a_sound_installation_has_nothing(patient: Patient) -> None:
    assert findings(patient) == {}


@pytest.mark.parametrize(("code", "induce", "mend"), FAULTS, ids=[code for code, _, _ in FAULTS])
def test_each_fault_is_named_with_its_fix(patient: Patient, code: str, induce: Callable[[Patient], None], mend: str) -> None:
    induce(patient)
    found = findings(patient)
    assert code in found, sorted(found)
    assert mend in found[code].mend


def test_a_further_engine_is_no_more_to_be_reached_in_the_open_than_the_first(patient: Patient) -> None:
    patient.produces(engine_url="http://127.0.0.1:8801")
    patient.settings.ENGINES = {"qwen": "http://8.8.8.8:8801"}
    assert "8.8.8.8" in findings(patient)["plain_engine"].says


@pytest.mark.postgres
def test_a_database_that_is_too_old_and_a_role_above_the_walls_are_named(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(checks._postgres()) == [], "the tests' role is the portal's"
    monkeypatch.setattr(connections["default"], "pg_version", 140012)
    with taken_off():  # the owner of a test database is its server's superuser
        found = {finding.code: finding.mend for finding in checks._postgres()}
    assert set(found) == {"postgres_too_old", "superuser"}
    assert "15 or later" in found["postgres_too_old"] and "marlaas_app" in found["superuser"]


def test_there_are_twenty_of_them() -> None:
    assert len({code for code, _, _ in FAULTS}) >= 20


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(patient: Patient) -> None:
    patient.outside["disk_usage"] = patient.raises(RuntimeError("no such syscall"))
    patient.settings.STRIPE_KEY = "sk_live_x"
    patient.outside["stripe"] = patient.raises(ConnectionError("down"))
    assert {"check_failed", "stripe_refuses"} <= findings(patient).keys()


def test_the_command_ends_with_1_where_something_is_bad(patient: Patient) -> None:
    patient.engine.down = True
    patient.patch.setattr("portal.console.management.commands.doctor._publish", lambda: None)
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("doctor", "--json", stdout=out)
    told = {entry["code"]: entry for entry in json.loads(out.getvalue())}
    assert ended.value.code == 1
    assert told["engine_away"]["mend"].startswith("start it")


def test_people_read_the_fix_below_the_fault(patient: Patient) -> None:
    patient.engine.down = True
    patient.patch.setattr("portal.console.management.commands.doctor._publish", lambda: None)
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("doctor", stdout=out)
    lines = out.getvalue().splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("BAD   engine"))
    assert "→ start it, or correct MARLAAS_ENGINE_URL" in lines[at + 1]
