from __future__ import annotations

import pytest

from engine.train.schedule import learning_rate_at
from engine.train_spec import TrainSpec


def rates(**spec) -> list[float]:
    train = TrainSpec(steps=5, learning_rate=1.0, **spec)
    return [learning_rate_at(train, version) for version in range(5)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, [1, 1, 1, 1, 1]),
        ({"warmup_steps": 3}, [0.25, 0.5, 0.75, 1, 1]),
        ({"schedule": "cosine", "warmup_steps": 1}, [0.5, 1, 0.8535534, 0.5, 0.1464466]),  # then (1 + cos(π·k/4)) / 2
    ],
)
def test_rates_by_hand(spec, expected):
    assert rates(**spec) == pytest.approx(expected)


def test_a_cosine_falls_from_the_full_rate_and_never_ends_at_none():
    found = rates(schedule="cosine")
    assert found[0] == 1.0
    assert found == sorted(found, reverse=True)
    assert 0 < found[-1] < 0.1
