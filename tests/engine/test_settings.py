from __future__ import annotations

import stat

import pytest

from engine import settings
from engine.settings import SettingsError


def test_each_variable_has_the_prefix(monkeypatch):
    monkeypatch.setenv("MARLAAS_TRAIN_RANKS", "3")
    monkeypatch.setenv("MARLAAS_ENGINE_URL", "http://127.0.0.1:9123/")

    loaded = settings.load()

    assert (loaded.train_ranks, loaded.port, loaded.engine_url) == (3, 9123, "http://127.0.0.1:9123")


def test_every_bad_value_is_named_with_its_variable(monkeypatch):
    monkeypatch.setenv("MARLAAS_TRAIN_RANKS", "none")
    monkeypatch.setenv("MARLAAS_REGIME", "chaos")

    with pytest.raises(SettingsError) as refused:
        settings.load()

    assert "MARLAAS_TRAIN_RANKS=none" in str(refused.value)
    assert "MARLAAS_REGIME=chaos: unknown regime; choose among" in str(refused.value)


def test_a_core_of_another_machine_is_refused():
    with pytest.raises(SettingsError, match=r"MARLAAS_ROLLOUT_CORES=9999: core 9999 is not available"):
        settings.load(rollout_cores="9999")


def test_a_runtime_folder_too_long_for_unix_sockets_is_refused():
    with pytest.raises(SettingsError, match=r"MARLAAS_RUNTIME: .* at most 45 characters"):
        settings.load(runtime="/tmp/" + "x" * 60)


def test_each_state_folder_has_a_runtime_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.delenv("MARLAAS_RUNTIME")

    one, other = settings.load(state=tmp_path / "a"), settings.load(state=tmp_path / "b")

    assert one.runtime_dir != other.runtime_dir
    assert one.runtime_dir == settings.load(state=tmp_path / "a").runtime_dir


def test_the_secret_is_made_once_and_only_its_owner_reads_it(tmp_path):
    loaded = settings.load(state=tmp_path)

    assert loaded.secret() == settings.load(state=tmp_path).secret()
    assert len(loaded.secret()) >= 32
    assert stat.S_IMODE((tmp_path / "engine-secret").stat().st_mode) == 0o600


def test_the_environment_s_secret_comes_before_the_file(monkeypatch, tmp_path):
    monkeypatch.setenv("MARLAAS_ENGINE_SECRET", "given")

    assert settings.load(state=tmp_path).secret() == "given"
    assert not (tmp_path / "engine-secret").exists()


def test_the_scrapers_token_is_made_as_the_portal_makes_it_and_never_in_production(monkeypatch, tmp_path):
    (tmp_path / "metrics-token").write_text("theirs\n")
    assert settings.load(state=tmp_path).metrics_bearer() == "theirs"
    monkeypatch.setenv("MARLAAS_METRICS_TOKEN", "given")
    assert settings.load(state=tmp_path, production=True).metrics_bearer() == "given"
    monkeypatch.setenv("MARLAAS_METRICS_TOKEN", "")
    assert settings.load(state=tmp_path, production=True).metrics_bearer() == ""


@pytest.mark.parametrize(("production", "given", "told"), [(False, "", False), (True, "", True), (True, "0", False), (False, "1", True)])
def test_log_lines_are_json_in_production_and_where_it_is_wanted(monkeypatch, production, given, told):
    monkeypatch.setenv("MARLAAS_LOG_JSON", given)
    assert settings.load(production=production).logs_are_json is told


def test_the_runtime_folder_is_closed_to_others(tmp_path):
    loaded = settings.load(state=tmp_path / "state")

    loaded.make_dirs()

    assert stat.S_IMODE(loaded.runtime_dir.stat().st_mode) == 0o700


def test_search_endpoints_are_named_urls(monkeypatch):
    monkeypatch.setenv("MARLAAS_SEARCH_ENDPOINTS", "wiki=https://wiki.example/w/api.php own=http://10.0.0.7/api.php")

    assert settings.load().search_endpoints == {"wiki": "https://wiki.example/w/api.php", "own": "http://10.0.0.7/api.php"}


@pytest.mark.parametrize("value", ["https://wiki.example/w/api.php", "wiki=ftp://wiki.example", "Wiki=https://wiki.example"])
def test_a_search_endpoint_without_name_or_web_address_is_refused(monkeypatch, value):
    monkeypatch.setenv("MARLAAS_SEARCH_ENDPOINTS", value)

    with pytest.raises(SettingsError, match=r"MARLAAS_SEARCH_ENDPOINTS=.*: write it as wiki=https"):
        settings.load()


def test_judges_are_named_models_at_an_address_and_their_keys_are_secret(monkeypatch):
    monkeypatch.setenv("MARLAAS_JUDGES", "strict=qwen/72b@http://10.0.0.7:8000/v1 mild=small@https://judge.example/v1")
    monkeypatch.setenv("MARLAAS_JUDGE_KEYS", "mild=sk-1")
    loaded = settings.load()

    assert loaded.judges == {"strict": "qwen/72b@http://10.0.0.7:8000/v1", "mild": "small@https://judge.example/v1"}
    assert "sk-1" not in repr(loaded)


@pytest.mark.parametrize(
    "value", ["strict=http://judge.example/v1", "Strict=m@http://judge.example", "strict=m@ftp://judge.example", "m@http://x"]
)
def test_a_judge_without_name_model_or_address_is_refused(monkeypatch, value):
    monkeypatch.setenv("MARLAAS_JUDGES", value)

    with pytest.raises(SettingsError, match=r"MARLAAS_JUDGES=.*: write it as strict=MODEL@"):
        settings.load()


def test_the_name_of_the_base_model_as_a_judge_is_taken(monkeypatch):
    monkeypatch.setenv("MARLAAS_JUDGES", "base=m@http://judge.example/v1")

    with pytest.raises(SettingsError, match="base always means the base model itself"):
        settings.load()


def test_earlier_secrets_are_written_with_commas_and_shown_to_nobody(monkeypatch):
    monkeypatch.setenv("MARLAAS_ENGINE_SECRET_FALLBACKS", "first, second,")
    loaded = settings.load()
    assert loaded.earlier_secrets() == ("first", "second")
    assert "first" not in repr(loaded)
