"""The commands: a table for people, JSON for programs."""

from __future__ import annotations

import json

import pytest

from engine.core.policy import REGIMES
from engine.sim import __main__ as sim


def test_one_regime_prints_one_row(capsys):
    assert sim.main(["run", "--regime", "marlaas", "--jobs", "3", "--steps", "2"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["3", "regime", "marlaas"]


def test_without_a_command_all_regimes_run(capsys):
    sim.main(["--jobs", "2", "--steps", "2", "--json"])
    reports = json.loads(capsys.readouterr().out)
    assert set(reports) == set(REGIMES)
    assert reports["marlaas"]["steps"] == 4


@pytest.mark.parametrize(
    "bad", [["--jobs", "0"], ["tables", "--most-steps", "1"], ["--regime", "fast"], ["--workload", "poetry"], ["dance"]]
)
def test_bad_arguments_are_refused(bad, capsys):
    with pytest.raises(SystemExit):
        sim.main(bad)
    assert "error" in capsys.readouterr().err


def test_the_tables_come_as_json_and_go_into_a_folder_with_the_plots(tmp_path, capsys):
    assert sim.main(["tables", "--most-steps", "2", "--json", "--out", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "out" / "tables.json").read_text())
    names = {"figure_6.svg", "figure_7.svg", "tables.json", "tables.txt", "timeline.svg"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
