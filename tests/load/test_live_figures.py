from __future__ import annotations

import pytest

from tests.load import pages
from tests.load.live import Seen, figures, parser

OPTIONS = parser().parse_args(["--watchers", "10", "--jobs", "2", "--seconds", "5"])


def of(seconds: list[float], *, breaks: int = 0, memory: tuple[int, int] = (100, 110)):
    return figures(Seen(seconds=seconds, breaks=breaks), [reading << 20 for reading in memory], OPTIONS)


def test_the_percentiles_are_of_all_watchers_together():
    found = of([number / 1000 for number in range(1, 101)])
    assert (found["p50"], found["p99"], found["worst"]) == (0.051, 0.1, 0.1)
    assert (found["steps_per_second"], found["growth"], found["holds"]) == (4.0, 1.1, True)


@pytest.mark.parametrize(
    "spoiled", [{"seconds": [0.6] * 100}, {"seconds": []}, {"seconds": [0.1], "breaks": 1}, {"seconds": [0.1], "memory": (100, 130)}]
)
def test_slow_silent_broken_or_growing_does_not_hold(spoiled):
    assert not of(**spoiled)["holds"]


def test_a_median_decides_whether_pages_hold_and_the_worst_is_told():
    options = pages.parser().parse_args([])
    drawn = {"first_draw": [100.0, 120.0, 900.0], "update": [20.0], "open": [5000.0]}
    found = pages.summary(drawn, {"jobs": [150.0]}, options)
    assert (found["milliseconds"]["first_draw"], found["late"], found["holds"]) == ({"median": 120.0, "worst": 900.0}, [], True)
    late = pages.summary(drawn | {"update": [100.0]}, {"jobs": [250.0]}, options)
    assert (late["late"], late["holds"]) == (["update", "jobs"], False)
