from __future__ import annotations

from deploy.supervisor.backoff import Backoff


def delays(crashes_at: list[float]) -> list[float]:
    backoff, seen = Backoff(first_seconds=1, longest_seconds=8, steady_seconds=60), []
    for at in crashes_at:
        backoff = backoff.crashed(at)
        seen.append(backoff.delay_seconds)
    return seen


def test_a_part_that_never_crashed_starts_at_once():
    assert Backoff().delay_seconds == 0


def test_each_crash_in_a_row_doubles_the_delay_up_to_a_limit():
    assert delays([0, 1, 2, 3, 4, 5]) == [1, 2, 4, 8, 8, 8]


def test_a_steady_life_forgives_earlier_crashes():
    weary = Backoff(first_seconds=1, steady_seconds=60, failures=5)
    assert weary.came_up(100).crashed(160).delay_seconds == 1


def test_a_short_life_forgives_nothing():
    weary = Backoff(first_seconds=1, steady_seconds=60, failures=2)
    assert weary.came_up(100).crashed(159).delay_seconds == 4


def test_crashing_for_days_keeps_the_delay_at_the_limit():
    assert Backoff(failures=1_000_000).delay_seconds == Backoff().longest_seconds
