"""The table of known faults names tests; each of them exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TABLE = (ROOT / "tests" / "README.md").read_text()
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ") and not line.startswith("| fault")]


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_table_has_every_reported_fault_of_engine_data_rewards_and_billing():
    assert len(ROWS) == 18 + 4 + 14


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:50])
def test_each_fault_says_what_must_happen_and_names_a_test(row):
    _, fault, wanted, tests, _ = (cell.strip() for cell in row.split("|"))

    assert fault and wanted and TEST.findall(tests)


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(TABLE))))
def test_each_named_test_exists(path, name):
    assert name in functions_of(path)
