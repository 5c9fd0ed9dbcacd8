from __future__ import annotations

import pytest

from engine.train.overlong import soft_overlong_penalty


@pytest.mark.parametrize(("length", "penalty"), [(1, 0.0), (60, 0.0), (70, -0.25), (80, -0.5), (100, -1.0), (120, -1.0)])
def test_the_penalty_grows_through_the_buffer(length, penalty):
    assert soft_overlong_penalty(length, limit=100, buffer=40) == pytest.approx(penalty)


def test_without_a_buffer_there_is_no_penalty():
    assert soft_overlong_penalty(100, limit=100, buffer=0) == 0.0
