from __future__ import annotations

from xml.etree import ElementTree

from engine.bench.bound import Bound
from engine.bench.measure import Measured, meta
from engine.bench.regimes import over_rounds, regime_figures
from engine.bench.report import report, table, write_report
from engine.settings import EngineSettings
from tests.engine.bench.runs import job, run, step

BOUND = Bound(rollout_s=1.0, train_s=2.0, path_s=3.0)


def measured() -> Measured:
    ours = run(job("a", step(1, 0, 0, 3, 0, 1, 0)), sampling=[(0, 3)])
    theirs = run(job("a", step(1, 0, 1, 6, 0, 1, 0), wanted=2), regime="single-disaggregated", cut_at=8.0, one_at_a_time=True)
    return Measured(runs={"marlaas": [ours], "single-disaggregated": [theirs]}, bound=BOUND)


def parts():
    found = measured()
    figures = {name: over_rounds([regime_figures(one, found.bound) for one in runs]) for name, runs in found.runs.items()}
    return figures, meta(found, workload="agentic", jobs=[], settings=EngineSettings(), seed=0) | {"steps_per_job": 10}, found


def test_the_report_says_how_much_faster_and_how_far_from_the_bound():
    text = report(*parts(), predicted={"marlaas": {"wall_s": 5.0, "measured_wall_s": 4.0, "error": 0.25}})

    assert "`marlaas` does 2.00 × the steps per hour of `single-disaggregated`" in text
    assert "No schedule does this work in less than 3.00 s: the longest job takes that long." in text
    assert "| marlaas | 5.0 s | 4.0 s | +25% |" in text


def test_a_cut_run_is_called_one():
    assert "single-disaggregated (50% run)" in report(*parts(), predicted={})


def test_the_report_and_its_pictures_are_written(tmp_path):
    path = write_report(tmp_path / "bench", *parts(), predicted={})

    pictures = sorted(picture.name for picture in path.parent.glob("*.svg"))
    assert pictures == ["throughput.svg", "timeline.svg"]
    assert all(f"({name})" in path.read_text() for name in pictures)
    assert all(ElementTree.parse(path.parent / name).getroot().tag.endswith("svg") for name in pictures)


def test_a_table_shows_what_is_unknown_as_unknown():
    assert table(["a", "b"], [["x", None]]).splitlines() == ["| a | b |", "| --- | ---: |", "| x | – |"]
