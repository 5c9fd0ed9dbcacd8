"""The commands: a table for people, JSON for programs."""

from __future__ import annotations

import json

import pytest

from engine.core.policy import REGIMES
from engine.sim import __main__ as sim
from engine.sim import bench


def test_one_regime_prints_one_row(capsys):
    assert sim.main(["--regime", "marlaas", "--jobs", "3", "--steps", "2"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["3", "regime", "marlaas"]


def test_all_regimes_come_as_json(capsys):
    sim.main(["--jobs", "2", "--steps", "2", "--json"])
    reports = json.loads(capsys.readouterr().out)
    assert set(reports) == set(REGIMES)
    assert reports["marlaas"]["steps"] == 4


@pytest.mark.parametrize("bad", [["--jobs", "0"], ["--regime", "fast"], ["--workload", "poetry"]])
def test_bad_arguments_are_refused(bad, capsys):
    with pytest.raises(SystemExit):
        sim.main(bad)
    assert "error" in capsys.readouterr().err


def test_the_bench_reports_every_size(capsys):
    assert bench.main(["--jobs", "10", "20", "--decisions", "50", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {tuple(sizes) for sizes in result["microseconds_per_decision"].values()} == {("10", "20")}


def test_the_bench_times_only_the_decisions():
    ticks = iter(range(10**6))
    per_decision = bench.microseconds_per_decision(10, bench.Policy(max_active=4), decisions=100, clock=lambda: float(next(ticks)))
    assert per_decision == 1e6


def test_the_bench_reads_for_people_too(capsys):
    bench.main(["--jobs", "10", "--decisions", "20"])
    assert "32 jobs of 100 steps simulated in" in capsys.readouterr().out
