from __future__ import annotations

import pytest

from engine.train.advantages import STD_EPSILON, grpo_advantages


def test_a_group_is_compared_with_its_own_mean_and_std():
    found = grpo_advantages([1.0, 0.0, 5.0, 9.0], 2)
    half = 0.5 / (0.5**0.5 + STD_EPSILON)
    four = 2.0 / (8.0**0.5 + STD_EPSILON)
    assert found.values == pytest.approx((half, -half, -four, four))


def test_an_ungraded_completion_is_left_out_of_mean_and_std():
    with_gap = grpo_advantages([1.0, None, 0.0, 0.0], 4)
    without = grpo_advantages([1.0, 0.0, 0.0], 3)
    assert with_gap.values == (without.values[0], 0.0, *without.values[1:])


@pytest.mark.parametrize("rewards", [[0.7, 0.7, 0.7], [0.0, 0.0, 0.0], [1.0, None, None], [None, None, None]])
def test_a_group_without_differences_gets_no_advantage_and_is_counted(rewards):
    found = grpo_advantages([*rewards, 0.0, 1.0, 0.0], 3)
    assert found.values[:3] == (0.0, 0.0, 0.0)
    assert (found.groups, found.zero_signal_groups, found.no_signal) == (2, 1, False)


def test_a_step_whose_groups_are_all_equal_has_no_signal():
    assert grpo_advantages([1.0, 1.0, 0.0, 0.0], 2).no_signal


@pytest.mark.parametrize("rewards", [[], [1.0, 2.0, 3.0]])
def test_rewards_that_do_not_fill_groups_are_refused(rewards):
    with pytest.raises(ValueError, match="groups of 2"):
        grpo_advantages(rewards, 2)
