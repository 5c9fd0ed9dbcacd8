from __future__ import annotations

import pytest

from engine.__main__ import main


def test_bad_settings_are_named_and_nothing_starts(monkeypatch, capsys):
    monkeypatch.setenv("MARLAAS_JOB_SLOTS", "0")

    assert main(["serve"]) == 2
    assert "MARLAAS_JOB_SLOTS=0" in capsys.readouterr().err


def test_the_audit_of_an_empty_folder_finds_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("MARLAAS_STATE", str(tmp_path))
    (tmp_path / "engine" / "journal").mkdir(parents=True)

    assert main(["audit"]) == 0


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as left:
        main(["fly"])

    assert left.value.code == 2
