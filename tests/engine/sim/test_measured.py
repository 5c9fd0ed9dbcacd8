"""A measured machine's speeds between and beyond the points that were measured."""

from __future__ import annotations

import pytest

from engine.sim.measured import MeasuredSpeeds
from engine.sim.profile import DecodePoint
from tests.engine.sim.test_profile import profile


def point(sequences: int, adapters: int, iteration_seconds: float) -> DecodePoint:
    return DecodePoint(sequences=sequences, adapters=adapters, tokens_per_second=sequences / iteration_seconds)


def speeds(*points: DecodePoint, collocated: bool = False, **changes) -> MeasuredSpeeds:
    return MeasuredSpeeds(profile(decode=points, **changes), collocated=collocated)


def test_a_measured_point_is_met():
    assert speeds(point(8, 1, 0.02), point(16, 1, 0.03)).iteration_seconds(8, 1, 0) == pytest.approx(0.02)


def test_between_two_points_an_iteration_is_in_between():
    assert speeds(point(8, 1, 0.02), point(16, 1, 0.03)).iteration_seconds(12, 1, 0) == pytest.approx(0.025)


def test_a_smaller_batch_than_any_measured_is_no_faster():
    assert speeds(point(8, 1, 0.02), point(16, 1, 0.03)).iteration_seconds(1, 1, 0) == pytest.approx(0.02)


def test_beyond_the_last_point_the_line_goes_on():
    assert speeds(point(8, 1, 0.02), point(16, 1, 0.03)).iteration_seconds(32, 1, 0) == pytest.approx(0.05)


def test_noise_never_makes_a_larger_batch_faster():
    assert speeds(point(8, 1, 0.03), point(16, 1, 0.02)).iteration_seconds(32, 1, 0) == pytest.approx(0.02)


def test_one_point_alone_is_taken_for_throughput():
    assert speeds(point(8, 1, 0.02)).iteration_seconds(16, 1, 0) == pytest.approx(0.04)


def test_adapters_are_interpolated_and_never_extrapolated():
    known = speeds(point(8, 1, 0.02), point(8, 5, 0.04))
    assert [known.iteration_seconds(8, adapters, 0) for adapters in (1, 3, 5, 9)] == pytest.approx([0.02, 0.03, 0.04, 0.04])


def test_training_is_fixed_seconds_and_seconds_per_token():
    assert speeds(point(1, 1, 1.0)).train_seconds(1000) == pytest.approx(0.05 + 1000 * 1e-5)


def test_collocated_each_phase_has_its_speedup():
    both = speeds(point(1, 1, 1.0), collocated=True, collocated_sampling_speedup=2.0, collocated_training_speedup=1.25)
    assert both.iteration_seconds(1, 1, 0) == 0.5
    assert both.prefill_seconds(1000) == 0.5
    assert both.train_seconds(0) == pytest.approx(0.04)


def test_the_profiles_overheads_are_the_simulators():
    assert speeds(point(1, 1, 1.0), train_start_seconds=0.3).overheads.train_start_seconds == 0.3
