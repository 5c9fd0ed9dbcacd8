"""Two versions on the same rows: the mean difference, its interval, and who won."""

from __future__ import annotations

import numpy as np
import pytest

from engine.paired import Comparison, best, change, compare, interval


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_rows_are_paired_by_their_number_not_by_their_place():
    found = compare({1: 0.0, 2: 1.0, 3: 0.5}, {3: 1.0, 1: 0.0, 2: 0.0}, rng())
    assert (found.wins, found.losses, found.ties) == (1, 1, 1)
    assert found.difference == pytest.approx(-1 / 6)
    assert (found.before, found.after) == (0.5, pytest.approx(1 / 3))


def test_a_row_that_only_one_of_them_has_counts_nowhere():
    found = compare({1: 0.0, 9: 1.0}, {1: 1.0, 8: 0.0}, rng())
    assert (found.rows, found.difference) == (1, 1.0)


def test_what_could_not_be_graded_is_counted_apart_and_is_no_zero():
    found = compare({1: 1.0, 2: None, 3: 1.0}, {1: 1.0, 2: 1.0, 3: None}, rng())
    assert (found.rows, found.invalid, found.ties, found.difference) == (1, 2, 1, 0.0)
    assert compare({1: None}, {1: 1.0}, rng()) is None
    assert change(None, 1.0) == change(1.0, None) == "invalid"


def test_the_same_difference_everywhere_leaves_no_doubt():
    found = compare(dict.fromkeys(range(40), 0.25), dict.fromkeys(range(40), 0.75), rng())
    assert (found.difference, found.low, found.high) == (0.5, 0.5, 0.5)


def test_one_pair_has_no_interval():
    assert interval(np.array([1.0]), rng()) == (None, None)


def test_the_interval_is_that_of_the_normal_law_where_rows_are_many():
    differences = np.array([1.0] * 300 + [0.0] * 600 + [-1.0] * 100)
    low, high = interval(differences, rng())
    wide = 1.96 * differences.std() / len(differences) ** 0.5
    assert (low, high) == (pytest.approx(0.2 - wide, abs=0.004), pytest.approx(0.2 + wide, abs=0.004))


def test_the_interval_holds_the_truth_nineteen_times_in_twenty():
    draws = np.random.default_rng(7).choice([-1.0, 0.0, 1.0], p=[0.1, 0.6, 0.3], size=(200, 80))
    held = sum(low <= 0.2 <= high for low, high in (interval(sample, rng(n)) for n, sample in enumerate(draws)))
    assert 0.91 <= held / 200 <= 0.98


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    differences = np.random.default_rng(3).normal(size=50)
    assert interval(differences, rng(1)) == interval(differences, rng(1)) != interval(differences, rng(2))


def test_differences_are_points_only_where_rewards_are_shares():
    assert compare({1: 0.0}, {1: 1.0}, rng()).unit_range
    assert not compare({1: 0.0}, {1: 3.0}, rng()).unit_range
    assert not compare({1: -0.5}, {1: 1.0}, rng()).unit_range


def test_the_best_is_the_earliest_of_the_highest():
    assert best({0: 0.2, 10: 0.8, 20: 0.8, 30: 0.5}) == 10
    assert best({0: 0.9, 10: 0.8}) == 0
    assert best({}) is None


def comparison(difference: float, low: float | None, high: float | None, **changes) -> Comparison:
    counts = {"rows": 96, "before": 0.5, "after": 0.5 + difference, "wins": 9, "losses": 4, "ties": 83, "invalid": 0, "unit_range": True}
    return Comparison(difference=difference, low=low, high=high, **{**counts, **changes})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (comparison(0.124, 0.081, 0.169), "better by 12.4 points (8.1 to 16.9)"),
        (comparison(-0.124, -0.169, -0.081), "worse by 12.4 points (8.1 to 16.9)"),
        (comparison(0.012, -0.02, 0.044), "no clear difference: +1.2 points (−2.0 to +4.4)"),
        (comparison(1.5, 1.25, 2.0, unit_range=False), "better by 1.5 (1.25 to 2)"),
        (comparison(0.0, 0.0, 0.0, wins=0, losses=0), "the same on every row"),
        (comparison(1.0, None, None), "+100.0 on one row, which tells nothing"),
    ],
)
def test_the_verdict_says_better_or_worse_only_where_chance_is_no_explanation(found, words):
    assert found.verdict() == words == found.as_dict()["verdict"]
