"""A machine with known speeds is timed; the arithmetic must find them again."""

from __future__ import annotations

import pytest

from engine.bench.speeds import Timed, decode_points, fitted, prefill_rate, request_costs, slowdown, split_by

DELAY, REQUEST, PREFILL = 0.02, 0.0005, 10_000.0


def timed(sequences: int, new_tokens: int, *, adapters: int = 1, prompt_tokens: int = 8) -> Timed:
    """On a machine whose iterations take 1 ms, 10 µs per sequence and 2 ms per adapter."""
    iteration = 1e-3 + 1e-5 * sequences + 2e-3 * adapters
    seconds = DELAY + sequences * (REQUEST + prompt_tokens / PREFILL) + (new_tokens - 1) * iteration
    return Timed(
        sequences=sequences, adapters=adapters, prompt_tokens=prompt_tokens, new_tokens=new_tokens, seconds=(9.0, seconds, seconds - 0.0)
    )


SIZES = [timed(sequences, tokens, adapters=adapters) for sequences in (8, 64) for adapters in (1, 4) for tokens in (8, 40)]


def test_decode_speed_is_the_slope_between_few_and_many_tokens():
    points = {(point.sequences, point.adapters): point.tokens_per_second for point in decode_points(SIZES)}

    assert points[8, 1] == pytest.approx(8 / 3.08e-3)
    assert points[64, 4] == pytest.approx(64 / 9.64e-3)


def test_prefill_speed_is_the_slope_between_short_and_long_prompts():
    assert prefill_rate(timed(64, 1, prompt_tokens=40), timed(64, 1, prompt_tokens=200)) == pytest.approx(PREFILL)


def test_what_is_left_of_a_batch_is_a_delay_and_a_cost_per_request():
    costs = request_costs(SIZES, PREFILL)

    assert (costs.fixed, costs.slope) == (pytest.approx(DELAY), pytest.approx(REQUEST))


def test_a_line_is_not_led_below_zero_by_noise():
    assert fitted([1.0, 2.0], [0.9, 2.1]).fixed == 0.0
    assert fitted([1.0, 2.0], [2.1, 1.9]).slope == 0.0
    assert fitted([1.0, 1.0], [2.0, 4.0]).fixed == 3.0


def test_work_beside_the_other_device_is_told_from_work_alone():
    runs = [(0.0, 1.0), (1.5, 3.0), (3.0, 5.0), (6.0, 7.0)]

    alone, beside = split_by(runs, [(2.0, 4.0), (4.0, 6.0)])

    assert (alone, beside) == ([1.0, 1.0], [2.0])
    assert slowdown(alone, beside) == 2.0


def test_a_slowdown_that_was_not_seen_is_none():
    assert slowdown([1.0], []) == slowdown([1.0], [0.9]) == 1.0
