from __future__ import annotations

import math

from engine import mismatch


def test_differences_come_back_by_completion_with_three_digits():
    data = mismatch.encode([0.0, -0.0123, 1.5, 3e-6])
    assert len(data) == 8
    (first, empty, rest) = mismatch.decode(data, [1, 0, 3])
    assert (first, empty, rest[1]) == ([0.0], [], 1.5)
    assert math.isclose(rest[0], -0.0123, rel_tol=1e-3) and math.isclose(rest[2], 3e-6, rel_tol=2e-2)


def test_what_is_no_number_is_not_known_and_what_is_too_large_is_the_largest():
    assert mismatch.decode(mismatch.encode([math.nan, math.inf, -1e9]), [3]) == [[None, 65500.0, -65500.0]]


def test_a_file_of_other_trajectories_says_nothing():
    assert mismatch.decode(mismatch.encode([0.1, 0.2]), [1, 2]) is None
