from __future__ import annotations

from engine.bench.activity import Stretches
from engine.bench.intervals import minus, seconds, union, within


def test_what_overlaps_or_touches_is_one_stretch():
    assert union([(4, 5), (0, 2), (1, 3), (3, 3.5)]) == [(0, 3.5), (4, 5)]


def test_what_is_taken_away_may_cut_a_stretch_in_two():
    assert minus([(0, 10), (12, 14)], [(2, 3), (13, 20)]) == [(0, 2), (3, 10), (12, 13)]


def test_time_that_several_cover_counts_once():
    assert seconds([(0, 2), (1, 3), (5, 6)]) == 4


def test_a_window_cuts_what_reaches_over_its_edges():
    assert within([(0, 2), (3, 4), (5, 9)], 1, 6) == [(1, 2), (3, 4), (5, 6)]


def test_looks_at_something_that_goes_on_and_off_become_stretches():
    seen = Stretches()
    for now, on in [(0, False), (1, True), (2, True), (3, False), (5, True)]:
        seen.look(now, on)

    assert seen.closed(6) == [(1, 3), (5, 6)]
