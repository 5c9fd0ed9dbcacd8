"""Thousands of random schedules against the rules of ``storm.Ledger``. A failure names its seed: ``Storm(seed).run(FACTS)`` replays it."""

from __future__ import annotations

import pytest

from tests.engine.core.storm import Broken, Storm

FACTS = 120


def play(seeds: range, facts: int) -> None:
    for seed in seeds:
        try:
            Storm(seed).run(facts)
        except (Broken, KeyError, ValueError, IndexError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_no_schedule_breaks_a_rule(first):
    play(range(first, first + 100), FACTS)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100_000, 110_000, 500))
def test_no_long_schedule_breaks_a_rule(first):
    """Ten thousand in all."""
    play(range(first, first + 500), 2 * FACTS)


def test_the_same_seed_plays_the_same_schedule():
    first, second = Storm(7), Storm(7)
    first.run(FACTS)
    second.run(FACTS)
    assert first.past == second.past
