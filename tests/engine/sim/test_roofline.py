"""Datasheet arithmetic, checked against numbers that are known otherwise."""

from __future__ import annotations

import pytest

from engine.sim.paper import SCALES
from engine.sim.roofline import QWEN3

# As the models' cards state them.
BILLIONS = {"Qwen3-0.6B": 0.596, "Qwen3-14B": 14.77, "Qwen3-32B": 32.76}


@pytest.mark.parametrize("name", sorted(QWEN3))
def test_a_model_has_as_many_parameters_as_its_card_says(name):
    assert QWEN3[name].parameters == pytest.approx(BILLIONS[name] * 1e9, rel=0.002)


def test_a_token_of_the_14b_model_takes_160_kib_of_cache():
    assert QWEN3["Qwen3-14B"].kv_bytes_per_token == 160 * 1024


@pytest.mark.parametrize("name", sorted(SCALES))
def test_weights_leave_room_for_a_cache(name):
    assert SCALES[name].disaggregated().kv_capacity_tokens > 500_000


def test_a_small_batch_waits_for_memory_and_a_large_one_for_arithmetic():
    speeds = SCALES["Qwen3-14B"].disaggregated()
    one, few, many, more = (speeds.iteration_seconds(n, 1, 0) for n in (4, 8, 1024, 2048))
    assert few == one
    assert (more - many) / (2048 - 1024) == pytest.approx(2 * QWEN3["Qwen3-14B"].active_parameters / 0.4 / 312e12 / 4)


def test_context_and_adapters_cost_time():
    speeds = SCALES["Qwen3-14B"].disaggregated()
    plain = speeds.iteration_seconds(8, 1, 0)
    assert speeds.iteration_seconds(8, 1, 1e6) > plain
    assert speeds.iteration_seconds(8, 8, 0) > plain


def test_all_devices_together_are_faster_at_each_phase():
    apart, together = SCALES["Qwen3-14B"].disaggregated(), SCALES["Qwen3-14B"].collocated()
    assert together.prefill_seconds(1000) == pytest.approx(apart.prefill_seconds(1000) / 2)
    assert together.train_seconds(1e6) < apart.train_seconds(1e6)
    assert together.iteration_seconds(256, 1, 1e5) < apart.iteration_seconds(256, 1, 1e5)
