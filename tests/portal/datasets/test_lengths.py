"""Prompt lengths: exact for few rows, sampled for many, and no row that is too long goes unseen."""

from __future__ import annotations

from collections.abc import Sequence

from portal.datasets.findings import Findings
from portal.datasets.lengths import Lengths, Ruler, histogram
from portal.datasets.rows import Row


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def measured(prompts: list[str], *, limit: int | None = None, kept: int = 1000) -> tuple[dict, Findings]:
    findings = Findings()
    lengths = Lengths(Ruler(model="m", count=words, limit=limit), findings, kept=kept)
    for line, prompt in enumerate(prompts, start=1):
        lengths.add(line, Row([{"role": "user", "content": prompt}], {}))
    return lengths.figures(), findings


def test_few_rows_are_all_counted() -> None:
    figures, _ = measured(["a " * n for n in range(1, 101)])
    assert {name: figures[name] for name in ("rows", "measured", "min", "p50", "p95", "max", "max_line")} == {
        "rows": 100,
        "measured": 100,
        "min": 1,
        "p50": 51,
        "p95": 96,
        "max": 100,
        "max_line": 100,
    }
    assert sum(entry["rows"] for entry in figures["histogram"]) == 100


def test_many_rows_are_sampled_evenly() -> None:
    figures, _ = measured(["a " * (1 + n % 10) for n in range(5000)], kept=100)
    assert figures["rows"] == 5000
    assert 50 <= figures["measured"] <= 100


def test_each_row_that_is_too_long_is_named_even_between_samples() -> None:
    prompts = ["short"] * 3000
    prompts[1501] = "long " * 50
    figures, findings = measured(prompts, limit=20, kept=10)
    assert (figures["over"], [fault["line"] for fault in findings.listed]) == (1, [1502])


def test_every_turn_of_a_chat_counts() -> None:
    lengths = Lengths(Ruler(model="m", count=words, limit=None), Findings())
    lengths.add(1, Row([{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is it"}], {}))
    assert lengths.figures()["max"] == 5


def test_nothing_to_measure_is_no_error() -> None:
    figures, _ = measured([])
    assert (figures["rows"], figures["histogram"]) == (0, [])


def test_bins_are_round_and_hold_every_row() -> None:
    bins = histogram([1, 2, 999], 999)
    assert {entry["to"] - entry["from"] for entry in bins} == {50}
    assert sum(entry["rows"] for entry in bins) == 3
