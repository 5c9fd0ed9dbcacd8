from __future__ import annotations

from engine.train.minibatches import plan_updates
from engine.train_spec import TrainSpec

LEARNING = [0, 1, 3, 4, 5, 8, 9, 10, 11, 16, 17]  # of groups of four: 0, 1, 2 and 4


def plan(*, epochs: int = 1, minibatches: int = 1, seed: int = 0, version: int = 0, learning=LEARNING):
    train = TrainSpec(epochs=epochs, minibatches=minibatches)
    return plan_updates(learning, 4, train, seed=seed, version=version)


def groups(members) -> set[int]:
    return {index // 4 for index in members}


def test_one_update_has_all_in_their_order():
    assert plan() == [tuple(LEARNING)]


def test_every_epoch_deals_each_group_to_exactly_one_minibatch():
    updates = plan(epochs=3, minibatches=2)
    assert len(updates) == 6
    for first in range(0, 6, 2):
        left, right = updates[first : first + 2]
        assert sorted(left + right) == LEARNING
        assert not groups(left) & groups(right)
        assert len(groups(left)) == len(groups(right)) == 2


def test_the_order_follows_from_seed_and_version_and_changes_with_them():
    assert plan(epochs=4, minibatches=4) == plan(epochs=4, minibatches=4)
    orders = {tuple(plan(minibatches=4, seed=seed, version=version)) for seed in range(4) for version in range(4)}
    assert len(orders) > 8
    epochs = plan(epochs=4, minibatches=4)
    assert len({tuple(epochs[start : start + 4]) for start in range(0, 16, 4)}) > 1


def test_there_are_no_more_minibatches_than_groups_that_learn():
    assert len(plan(minibatches=8)) == 4
    assert plan(minibatches=8, epochs=2, learning=[0, 2]) == [(0, 2), (0, 2)]
    assert plan(minibatches=8, learning=[]) == []
