from __future__ import annotations

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from portal import env

PRODUCTION = {
    "MARLAAS_PRODUCTION": "1",
    "MARLAAS_SECRET_KEY": "abcdefghijklmnopqrstuvwxyz" * 2,
    "MARLAAS_ENGINE_SECRET": "s",
    "MARLAAS_ALLOWED_HOSTS": "ml.example.org,www.example.org",
    "MARLAAS_TRUSTED_ORIGINS": "https://ml.example.org,https://www.example.org",
    "DATABASE_URL": "postgres://u:p%40ss@db.example.org:5433/marlaas?sslmode=require",
    "MARLAAS_REDIS_URL": "rediss://redis:6379/0",
    "MARLAAS_EMAIL_URL": "smtps://u:p@mail:465",
}


def load(monkeypatch: pytest.MonkeyPatch, **variables: str | None) -> env.Env:
    for name, value in variables.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    return env.load()


def refusal(monkeypatch: pytest.MonkeyPatch, **variables: str | None) -> str:
    with pytest.raises(env.BadSettings) as refused:
        load(monkeypatch, **variables)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MARLAAS_WEB_PORT", "eighty"),
        ("MARLAAS_WEB_PORT", "70000"),
        ("MARLAAS_PRODUCTION", "perhaps"),
        ("MARLAAS_ENGINE_URL", "127.0.0.1:8801"),
        ("MARLAAS_REDIS_URL", "http://redis"),
        ("MARLAAS_MAX_UPLOAD_BYTES", "-1"),
    ],
)
def test_a_bad_setting_refuses_to_start_and_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    assert name in refusal(monkeypatch, **{name: value})


def test_a_whole_production_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(monkeypatch, **PRODUCTION)
    assert loaded.allowed_hosts == ("ml.example.org", "www.example.org")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, None) for name in PRODUCTION if name != "MARLAAS_PRODUCTION"),
        ("MARLAAS_SECRET_KEY", "short"),
        ("MARLAAS_SECRET_KEY", "k" * 60),
        ("MARLAAS_TRUSTED_ORIGINS", "http://ml.example.org"),
        ("MARLAAS_ALLOWED_HOSTS", "*"),
        ("MARLAAS_ALLOWED_HOSTS", "localhost"),
        ("MARLAAS_DEBUG", "1"),
        ("DATABASE_URL", "sqlite:////tmp/x"),
    ],
)
def test_an_insecure_production_refuses_to_start(monkeypatch: pytest.MonkeyPatch, name: str, value: str | None) -> None:
    assert name in refusal(monkeypatch, **{**PRODUCTION, name: value})


def test_no_secret_is_shown_in_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = refusal(monkeypatch, **{**PRODUCTION, "MARLAAS_ENGINE_SECRET": "hunter2", "MARLAAS_WEB_PORT": "x"})
    assert "hunter2" not in text


def test_a_postgres_url_becomes_djangos_settings() -> None:
    found = env.database(PRODUCTION["DATABASE_URL"])
    assert (found["HOST"], found["PORT"], found["NAME"], found["USER"], found["PASSWORD"]) == (
        "db.example.org",
        "5433",
        "marlaas",
        "u",
        "p@ss",
    )
    assert found["OPTIONS"]["sslmode"] == "require"


def test_a_database_of_another_kind_is_refused() -> None:
    with pytest.raises(env.BadSettings):
        env.database("mysql://x/y")


def test_a_generated_secret_stays_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    first = env.generated_secret(path)
    assert (env.generated_secret(path), len(first) >= 50) == (first, True)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["secret"]


def test_many_first_starts_at_once_agree_on_the_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(lambda _: env.generated_secret(tmp_path / "secret"), range(64)))) == 1


def test_sockets_fit_into_their_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded = load(monkeypatch, MARLAAS_RUNTIME=None, MARLAAS_STATE=str(tmp_path / ("deep/" * 30)))
    assert len(loaded.redis) < 107


def test_portal_and_engine_agree_on_the_runtime_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from engine.settings import EngineSettings

    loaded = load(monkeypatch, MARLAAS_RUNTIME=None, MARLAAS_STATE=str(tmp_path))
    assert loaded.runtime_dir == EngineSettings().runtime_dir


def test_every_setting_stands_in_the_table() -> None:
    from engine.settings import EngineSettings

    page = Path("deploy/SETTINGS.md").read_text()
    fields = {*env.Env.model_fields, *EngineSettings.model_fields} - {"database_url"}
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted({f"MARLAAS_{field.upper()}" for field in fields} | {"DATABASE_URL"})


def test_migrations_run_as_the_tables_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(monkeypatch, **PRODUCTION, MARLAAS_OWNER_DATABASE_URL="postgres://owner:secret@db/marlaas")
    assert (loaded.database()["USER"], loaded.database(migrating=True)["USER"]) == ("u", "owner")


def test_a_command_typed_beside_a_supervisor_finds_its_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MARLAAS_ENGINE_URL", raising=False)
    monkeypatch.setenv("MARLAAS_STATE", str(tmp_path))
    assert env.load().engine_url == env.ENGINE_URL
    note = tmp_path / "run" / "supervisor.lock"
    note.parent.mkdir()
    for text, url in [
        ('{"pid": 1, "engine_url": "http://127.0.0.1:9001"}', "http://127.0.0.1:9001"),
        ("", env.ENGINE_URL),
        ("{", env.ENGINE_URL),
    ]:
        note.write_text(text)
        assert env.load().engine_url == url
    note.write_text('{"engine_url": "http://127.0.0.1:9001"}')
    assert load(monkeypatch, MARLAAS_ENGINE_URL="http://gpu:8801").engine_url == "http://gpu:8801"


def test_further_engines_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(monkeypatch, MARLAAS_ENGINES="qwen=http://10.0.0.2:8801/ llama=https://10.0.0.3:8801")
    assert loaded.engines == {"qwen": "http://10.0.0.2:8801", "llama": "https://10.0.0.3:8801"}
    for bad in ("qwen", "Qwen=http://a", "main=http://a", "a=http://b a=http://c", "qwen=ftp://a"):
        assert "MARLAAS_ENGINES" in refusal(monkeypatch, MARLAAS_ENGINES=bad)
