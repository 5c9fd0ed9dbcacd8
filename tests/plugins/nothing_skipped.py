"""Nothing is ever skipped: a skip, an expected failure or a collection-time skip counts as a failure.

With ``MARLAAS_TEST_LEDGER`` set, the ids of all tests that passed are appended to that file, so that the stage runner can prove that
every test of the tree ran in some stage.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

LEDGER = os.environ.get("MARLAAS_TEST_LEDGER")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped or hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "skipped")
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped or expected to fail, and nothing is skipped here: {reason}"
        if hasattr(report, "wasxfail"):
            del report.wasxfail
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped as a whole, and nothing is skipped here: {report.longrepr}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if LEDGER and report.when == "call" and report.passed:
        with Path(LEDGER).open("a") as ledger:
            ledger.write(f"{report.nodeid}\n")
