from __future__ import annotations

from datetime import UTC, datetime, timedelta

from engine.clock import Timeline


class JumpingClock:
    """Its time of day can be set; its monotonic time cannot."""

    def __init__(self):
        self.seconds = 1000.0
        self.day = datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self):
        return self.seconds

    def utc(self):
        return self.day


def test_stamps_follow_the_monotonic_clock_whatever_happens_to_the_time_of_day():
    clock = JumpingClock()
    timeline = Timeline(clock)
    clock.seconds += 5
    clock.day -= timedelta(days=1)
    assert timeline.at() == datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)


def test_a_moment_of_the_past_has_its_place_on_the_monotonic_clock():
    timeline = Timeline(JumpingClock())
    assert timeline.monotonic(datetime(2025, 12, 31, 23, 59, 50, tzinfo=UTC)) == 990.0
    assert timeline.monotonic() == 1000.0
