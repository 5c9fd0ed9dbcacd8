from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.load.api import Answers, figures, parser, paths

OPTIONS = parser().parse_args(["--seconds", "10"])
EVEN = {"jobs/": [0.1] * 98 + [0.4] * 2}


def of(seconds: dict[str, list[float]], *, wrong: dict[str, int] | None = None, job_ran: bool = True) -> dict[str, Any]:
    return figures(Answers(seconds=seconds, wrong=Counter(wrong or {})), OPTIONS, job_ran=job_ran)


def test_the_ratio_is_of_all_addresses_together() -> None:
    found = of({"jobs/": [0.1] * 90, "me/": [0.1] * 8 + [0.4] * 2})
    assert (found["p50"], found["p99"], found["ratio"], found["requests_per_second"]) == (0.1, 0.4, 4.0, 10.0)
    assert found["by_address"] == {"jobs/": {"p50": 0.1, "p99": 0.1}, "me/": {"p50": 0.1, "p99": 0.4}}
    assert found["holds"]


@pytest.mark.parametrize(
    "spoiled",
    [
        {"seconds": {"jobs/": [0.1] * 98 + [0.6] * 2}},
        {"seconds": {}},
        {"seconds": EVEN, "wrong": {"500 jobs/": 1}},
        {"seconds": EVEN, "job_ran": False},
    ],
)
def test_waiting_silence_errors_or_an_idle_engine_do_not_hold(spoiled: dict[str, Any]) -> None:
    assert of(EVEN)["holds"]
    assert not of(**spoiled)["holds"]


def test_a_client_without_a_job_asks_for_none_and_each_begins_elsewhere() -> None:
    assert not any("job_" in path for path in paths(None, 0))
    assert sorted(paths("job_1", 0)) == sorted(paths("job_1", 3)) != paths("job_1", 3)
