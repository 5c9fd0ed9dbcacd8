"""Lognormals with a cap, against draws."""

from __future__ import annotations

import random
from statistics import mean, pstdev

import pytest

from engine.sim.distributions import CappedLogNormal

WAIT = CappedLogNormal(median=0.5, sigma=0.5, cap=1.0)


def draws(of: CappedLogNormal, count: int = 20_000) -> list[float]:
    chance = random.Random(1)
    return [of.quantile(chance.random()) for _ in range(count)]


def test_half_of_the_draws_are_below_the_median():
    assert WAIT.quantile(0.5) == 0.5


def test_no_draw_exceeds_the_cap():
    assert max(draws(WAIT)) == 1.0


@pytest.mark.parametrize("of", [WAIT, CappedLogNormal(median=3.0, sigma=0.8), CappedLogNormal(median=3.0, sigma=0.0, cap=2.0)])
def test_the_mean_is_that_of_the_draws(of):
    assert of.mean() == pytest.approx(mean(draws(of)), rel=0.02)


@pytest.mark.parametrize("of", [WAIT, CappedLogNormal(median=3.0, sigma=0.8)])
def test_the_bands_of_a_partition_add_up_to_the_mean(of):
    bands = [of.band_mean(i / 6, (i + 1) / 6) for i in range(6)]
    assert mean(bands) == pytest.approx(of.mean())
    assert bands == sorted(bands)


def test_a_sum_has_the_mean_and_the_spread_of_so_many_draws():
    found = draws(WAIT)
    sums = [sum(found[i : i + 4]) for i in range(0, len(found), 4)]
    of = WAIT.summed(4)
    assert of.mean() == pytest.approx(mean(sums), rel=0.02)
    assert pstdev(draws(of)) == pytest.approx(pstdev(sums), rel=0.1)
