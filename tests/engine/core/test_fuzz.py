"""Thousands of random schedules against the rules of ``storm.Ledger``. A failure names its seed: ``Storm(seed).run(FACTS)`` replays it."""

from __future__ import annotations

import pytest

from tests.engine.core.storm import Broken, Storm

FACTS = 120
SCHEDULES_PER_TEST = 250


def play(seeds: range, facts: int) -> None:
    for seed in seeds:
        try:
            Storm(seed).run(facts)
        except (Broken, KeyError, ValueError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("block", range(12))
def test_no_schedule_breaks_a_rule(block):
    play(range(block * SCHEDULES_PER_TEST, (block + 1) * SCHEDULES_PER_TEST), FACTS)


@pytest.mark.soak
def test_no_long_schedule_breaks_a_rule():
    play(range(100_000, 120_000), 250)


def test_the_same_seed_plays_the_same_schedule():
    first, second = Storm(7), Storm(7)
    first.run(FACTS)
    second.run(FACTS)
    assert first.past == second.past
