"""The estimators against exact numbers: every possible group is counted, every possible sample weighed."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from statistics import fmean

import pytest

from engine.probe_estimate import Beta, fit_beta, interval, right_share, silent_share, wilson, wrong_share


def counted(rewards, g: int) -> Fraction:
    """Of all groups of ``g`` of these completions, the share that is all alike."""
    groups = list(itertools.combinations(rewards, g))
    return Fraction(sum(len(set(group)) == 1 for group in groups), len(groups))


@pytest.mark.parametrize("g", [2, 3, 4, 8])
@pytest.mark.parametrize("right", range(9))
def test_it_is_the_share_of_all_groups_that_can_be_drawn_from_the_sample(right, g):
    rewards = [1.0] * right + [0.0] * (8 - right)
    assert silent_share(rewards, g) == pytest.approx(float(counted(rewards, g)), abs=1e-12)


def test_rewards_of_more_than_two_values_count_alike():
    rewards = [0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 2.0]
    assert silent_share(rewards, 2) == pytest.approx(float(counted(rewards, 2)))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("g", [2, 4, 6])
def test_over_all_samples_it_is_right_on_average(p, g):
    """Unbiased: Σ over k of Binomial(k; 6, p) · estimate(k) = p^g + (1 − p)^g. The plain (k/n)^g is not."""
    weights = [math.comb(6, k) * p**k * (1 - p) ** (6 - k) for k in range(7)]
    samples = [[1.0] * k + [0.0] * (6 - k) for k in range(7)]
    assert sum(w * silent_share(s, g) for w, s in zip(weights, samples, strict=True)) == pytest.approx(p**g + (1 - p) ** g)
    assert sum(w * right_share(s, g) for w, s in zip(weights, samples, strict=True)) == pytest.approx(p**g)
    assert sum(w * wrong_share(s, g) for w, s in zip(weights, samples, strict=True)) == pytest.approx((1 - p) ** g)
    assert sum(w * (sum(s) / 6) ** g for w, s in zip(weights, samples, strict=True)) > 1.01 * p**g


def test_what_could_not_be_graded_is_left_out_of_a_group_as_the_trainer_does():
    assert silent_share([1.0, 1.0, None, None], 4) == 1.0
    assert silent_share([1.0, 0.0, None, None], 4) == 0.0
    assert silent_share([1.0, None, None, None], 4) == silent_share([None] * 4, 4) == 1.0
    assert right_share([1.0, 1.0, None, None], 4) == 0.0


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 5), (0.5, 0.5)])
@pytest.mark.parametrize("g", [1, 2, 8, 16])
def test_powers_of_a_beta_are_the_textbooks(a, b, g):
    exact = math.exp(math.lgamma(a + g) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(a + b + g))
    assert Beta(mean=a / (a + b), spread=1 / (a + b + 1)).power(g) == pytest.approx(exact)


def test_its_two_ends_are_equal_rows_and_rows_that_are_always_or_never_right():
    assert Beta(mean=0.3, spread=0.0).silent(5) == pytest.approx(0.3**5 + 0.7**5)
    assert Beta(mean=0.3, spread=1.0).silent(5) == pytest.approx(1.0)


def test_the_fit_finds_the_spread_that_the_rows_were_drawn_with():
    """Rates of Beta(2, 3), 20,000 rows of 6 completions: E[p^16 + (1 − p)^16] from samples that hold no group of 16."""
    chance = random.Random(5)
    rows = [(sum(chance.random() < p for _ in range(6)), 6) for p in (chance.betavariate(2, 3) for _ in range(20_000))]
    fitted, true = fit_beta(rows), Beta(mean=0.4, spread=1 / 6)
    assert (fitted.mean, fitted.spread) == pytest.approx((true.mean, true.spread), abs=0.01)
    assert fitted.silent(16) == pytest.approx(true.silent(16), abs=0.01)


def test_rows_with_one_grade_say_nothing_of_spread():
    assert fit_beta([(1, 1), (0, 1)]) is None
    assert fit_beta([(4, 4), (4, 4)]).silent(100) == 1.0


def test_the_intervals_hold_the_truth_as_often_as_they_say():
    chance, inside_share, inside_mean = random.Random(1), 0, 0
    for _ in range(2000):
        values = [float(chance.random() < 0.2) for _ in range(40)]
        share, mean = wilson(fmean(values), 40), interval([chance.gauss(3, 1) for _ in range(40)])
        inside_share += share.low <= 0.2 <= share.high
        inside_mean += mean.low <= 3 <= mean.high
    assert 0.91 <= inside_share / 2000 <= 0.97
    assert 0.93 <= inside_mean / 2000 <= 0.97


def test_nothing_seen_is_not_nothing_there():
    assert wilson(0.0, 20).high == pytest.approx(0.161, abs=0.001)
    assert (interval([2.0]).low, interval([]).mean) == (2.0, 0.0)
