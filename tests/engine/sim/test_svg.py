"""The plots are well-formed, named, described, and readable without colour and in the dark."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from engine.sim.plots import plots
from engine.sim.runs import Runs
from engine.sim.svg import PHASES, Panel, Span, charts, timeline
from engine.sim.tables import figure_6, figure_7

SVG = "{http://www.w3.org/2000/svg}"


def panel(**series) -> Panel:
    return Panel(title="P & Q", x_label="jobs", y_label="seconds", series=series)


def parse(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


@pytest.fixture(scope="module")
def drawn() -> dict[str, ElementTree.Element]:
    runs = Runs(most_steps=2)
    found = {"figure_6": figure_6(runs), "figure_7": figure_7(runs)}
    return {name: parse(text) for name, text in plots(runs, found).items()}


def test_every_plot_has_a_title_and_a_description(drawn):
    assert set(drawn) == {"figure_6.svg", "figure_7.svg", "timeline.svg"}
    for root in drawn.values():
        assert root.get("role") == "img"
        assert root.find(f"{SVG}title").text
        assert len(root.find(f"{SVG}desc").text) > 50


def test_every_curve_has_its_own_dash(drawn):
    dashes = [line.get("stroke-dasharray") for line in drawn["figure_6.svg"].iter(f"{SVG}polyline")]
    assert len(dashes) == 12
    assert len(set(dashes)) == 4


def test_the_colours_follow_the_viewers_scheme():
    assert "prefers-color-scheme:dark" in charts("T", "D", [panel(a=[(1.0, 2.0), (2.0, 4.0)])], columns=1)


def test_names_are_escaped():
    root = parse(charts("T < U", "D", [panel(a=[(1.0, 2.0)])], columns=1))
    assert root.find(f"{SVG}title").text == "T < U"


def test_a_point_twice_as_high_on_a_decade_is_drawn_higher():
    root = parse(charts("T", "D", [panel(a=[(1.0, 20.0), (2.0, 40.0)])], columns=1))
    low, high = (float(dot.get("cy")) for dot in root.iter(f"{SVG}circle"))
    assert high < low


def test_a_timeline_draws_spans_in_proportion_and_leaves_out_empty_ones():
    spans = [
        Span(phase="rollout", start=0.0, end=30.0),
        Span(phase="training", start=30.0, end=40.0),
        Span(phase="waiting", start=9.0, end=9.0),
    ]
    root = parse(timeline("T", "D", {"marlaas": {"job": spans}}, end=40.0))
    bars = [float(bar.get("width")) for bar in root.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]
    assert bars == pytest.approx([562.5, 187.5])


def test_the_timelines_legend_names_every_phase():
    root = parse(timeline("T", "D", {"marlaas": {"job": []}}, end=10.0))
    assert {text.text for text in root.iter(f"{SVG}text")} >= set(PHASES)
