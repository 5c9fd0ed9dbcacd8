from __future__ import annotations

import statistics

import pytest

from engine.train.advantages import ADVANTAGES, STD_EPSILON, batch_advantages, grpo_advantages, rloo_advantages, unscaled_advantages
from engine.train_spec import TrainSpec

every_kind = pytest.mark.parametrize("kind", list(ADVANTAGES))


def test_a_group_is_compared_with_its_own_mean_and_std():
    found = grpo_advantages([1.0, 0.0, 5.0, 9.0], 2)
    half = 0.5 / (0.5**0.5 + STD_EPSILON)
    four = 2.0 / (8.0**0.5 + STD_EPSILON)
    assert found.values == pytest.approx((half, -half, -four, four))


def test_leave_one_out_compares_with_the_mean_of_the_others():
    assert rloo_advantages([1.0, 0.0, 5.0, 4.0], 4).values == pytest.approx((1.0 - 3.0, 0.0 - 10 / 3, 5.0 - 5 / 3, 4.0 - 2.0))


def test_unscaled_only_takes_the_mean_away():
    assert unscaled_advantages([1.0, 0.0, 5.0, 9.0], 2).values == pytest.approx((0.5, -0.5, -2.0, 2.0))


def test_batch_scaling_divides_all_groups_by_one_deviation():
    rewards = [1.0, 0.0, 5.0, 9.0]
    scale = statistics.stdev(rewards) + STD_EPSILON
    assert batch_advantages(rewards, 2).values == pytest.approx([value / scale for value in (0.5, -0.5, -2.0, 2.0)])


def test_batch_scaling_leaves_out_what_could_not_be_graded():
    scale = statistics.stdev([1.0, 0.0, 3.0]) + STD_EPSILON
    assert batch_advantages([1.0, 0.0, None, 3.0], 2).values == pytest.approx((0.5 / scale, -0.5 / scale, 0.0, 0.0))


@every_kind
def test_an_ungraded_completion_is_left_out_of_mean_and_std(kind):
    with_gap = ADVANTAGES[kind]([1.0, None, 0.0, 0.0], 4)
    without = ADVANTAGES[kind]([1.0, 0.0, 0.0], 3)
    assert with_gap.values == (without.values[0], 0.0, *without.values[1:])


@every_kind
@pytest.mark.parametrize("rewards", [[0.7, 0.7, 0.7], [0.0, 0.0, 0.0], [1.0, None, None], [None, None, None]])
def test_a_group_without_differences_gets_no_advantage_and_is_counted(kind, rewards):
    found = ADVANTAGES[kind]([*rewards, 0.0, 1.0, 0.0], 3)
    assert found.values[:3] == (0.0, 0.0, 0.0)
    assert (found.groups, found.zero_signal_groups, found.no_signal) == (2, 1, False)


@every_kind
def test_a_step_whose_groups_are_all_equal_has_no_signal(kind):
    assert ADVANTAGES[kind]([1.0, 1.0, 0.0, 0.0], 2).no_signal


@every_kind
def test_a_step_in_which_nothing_could_be_graded_has_no_signal(kind):
    assert ADVANTAGES[kind]([None, None], 2).no_signal


@every_kind
@pytest.mark.parametrize("rewards", [[], [1.0, 2.0, 3.0]])
def test_rewards_that_do_not_fill_groups_are_refused(kind, rewards):
    with pytest.raises(ValueError, match="groups of 2"):
        ADVANTAGES[kind](rewards, 2)


def test_the_spec_offers_exactly_the_advantages_there_are():
    assert tuple(ADVANTAGES) == TrainSpec.model_fields["advantage"].annotation.__args__
