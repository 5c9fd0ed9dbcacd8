from __future__ import annotations

from collections import Counter

import pytest

from tests.load.live import Seen
from tests.load.service import READINGS, WARM, Calls, figures, parser

pytestmark = pytest.mark.engine  # what it imports for its readings knows the engine's processes

OPTIONS = parser().parse_args([])


def of(lag=(0.2,) * 100, *, breaks=0, failed=(), calls=(0.1,), web=(100, 110)):
    heard = Calls(seconds={"jobs/": list(calls)} if calls else {}, failed=Counter(failed))
    cold, last = [10] * (WARM - 1), [web[1]] * (READINGS - WARM)
    readings = [{"web": megabytes << 20} for megabytes in (*cold, web[0], *last)]
    return figures(Seen(seconds=list(lag), breaks=breaks), heard, readings, 800, OPTIONS)


def test_a_calm_day_holds():
    found = of()
    assert (found["holds"], found["lag"]["p99"], found["growth"]) == (True, 0.2, {"web": 1.1})


@pytest.mark.parametrize(
    "spoiled", [{"lag": [1.2] * 100}, {"lag": []}, {"breaks": 1}, {"failed": ["jobs/: 500"]}, {"calls": []}, {"web": (100, 130)}]
)
def test_slow_silent_broken_failing_or_growing_does_not_hold(spoiled):
    assert not of(**spoiled)["holds"]


def test_a_bad_minute_shows_where_it_was():
    assert of([0.2] * 50 + [5.0] * 10 + [0.2] * 40)["lag_p99_by_tenth"] == [0.2] * 5 + [5.0] + [0.2] * 4
    assert of([0.2] * 9)["lag_p99_by_tenth"] == []
