"""The paper's artefacts: all there, deterministic, and true to the runs behind them."""

from __future__ import annotations

import json

import pytest

from engine.core.policy import REGIMES
from engine.sim import layout
from engine.sim.paper import SCALES
from engine.sim.runs import Runs
from engine.sim.statements import statements
from engine.sim.tables import ABLATIONS, CURVES, GROUP_SIZES, JOB_COUNTS, TASKS, rounded, table_1, tables


def computed(seed: int = 0) -> dict:
    runs = Runs(seed=seed, most_steps=2)
    found = tables(runs)
    return {**found, "statements": statements(runs, found)}


@pytest.fixture(scope="module")
def found() -> dict:
    return computed()


def test_every_artefact_covers_every_scale(found):
    names = ["table_1", "table_2", "table_3", "table_4", "figure_6", "figure_7", "group_sizes"]
    assert list(found) == [*names, "statements"]
    assert all(list(found[name]) == list(SCALES) for name in names)


def test_the_tables_have_every_regime_and_the_ablation_its_own(found):
    for model in SCALES:
        assert list(found["table_2"][model]) == list(found["table_3"][model]) == list(REGIMES)
        assert list(found["table_4"][model]) == list(ABLATIONS)
        assert {name: list(tasks) for name, tasks in found["table_1"][model].items()} == {
            "multi-lora-sync": list(TASKS),
            "marlaas": list(TASKS),
        }


def test_the_figures_go_from_one_job_to_thirty_two(found):
    for figure in ("figure_6", "figure_7"):
        for curves in found[figure].values():
            assert {name: list(curve) for name, curve in curves.items()} == {name: [str(n) for n in JOB_COUNTS] for name in CURVES}
    assert list(found["group_sizes"]["Qwen3-14B"]) == [str(size) for size in GROUP_SIZES]


def test_ratios_are_to_one_job_at_a_time(found):
    for row in found["table_2"].values():
        assert row["single-disaggregated"]["throughput_vs_single"] == 1.0
        assert row["marlaas"]["runtime_vs_single"] == row["single-disaggregated"]["wall_s"] / row["marlaas"]["wall_s"]


def test_busy_and_idle_add_up(found):
    for rows in found["table_3"].values():
        for row in rows.values():
            assert row["utilisation_share"] + row["idle_share"] == pytest.approx(1.0)
            assert 0 < row["utilisation_share"] <= 1


def test_the_fast_task_waits_longest_at_a_barrier(found):
    tasks = found["table_1"]["Qwen3-14B"]["multi-lora-sync"]
    assert tasks["search"]["waiting_s"] > tasks["amc12"]["waiting_s"]


def test_every_statement_of_the_paper_stands_beside_ours(found):
    for one in found["statements"]:
        assert one["paper"] and one["simulated"]
        assert one["agrees"] == (one["why"] is None)


def test_the_same_seed_gives_the_same_text():
    first, again, other = (json.dumps(table_1(Runs(seed=seed, most_steps=2))) for seed in (3, 3, 4))
    assert first == again != other


def test_people_read_every_artefact_in_the_papers_order(found):
    text = layout.text(found)
    heads = ["Table 1.", "Table 2.", "Table 3.", "Table 4.", "Figure 6.", "Figure 7.", "own statements"]
    assert [text.index(head) for head in heads] == sorted(text.index(head) for head in heads)
    assert max(len(line) for line in text.splitlines() if not line.startswith("    ")) <= 140


def test_a_grid_leaves_out_what_the_row_above_says_already():
    text = layout.grid("T", ["model", "regime", "n"], [["a", "x", 1], ["a", "y", 10], ["b", "y", 2]])
    assert text.splitlines() == ["T", "model  regime   n", "a      x        1", "       y       10", "b      y        2"]


def test_numbers_are_rounded_to_what_a_simulation_can_claim():
    assert rounded({"a": [1234.56789, 3], "b": None}) == {"a": [1234.57, 3], "b": None}
