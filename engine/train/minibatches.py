"""Which completions each of a step's optimizer updates learns from."""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine.train_spec import TrainSpec


def plan_updates(learning: Sequence[int], group_size: int, train: TrainSpec, *, seed: int, version: int) -> list[tuple[int, ...]]:
    """The members (indices of completions, out of ``learning``) of each update, in order: ``train.minibatches`` per epoch.

    Groups stay whole, since their advantages belong together. They are shuffled anew in each epoch by (seed, version, epoch) alone, so a
    step that is done again is done the same. With fewer learning groups than minibatches there are only as many updates as groups.
    """
    groups: dict[int, list[int]] = {}
    for index in learning:
        groups.setdefault(index // group_size, []).append(index)
    parts = min(train.minibatches, len(groups))
    if parts <= 1:
        return [tuple(learning)] * train.epochs if groups else []
    updates: list[tuple[int, ...]] = []
    for epoch in range(train.epochs):
        order = sorted(groups)
        random.Random(f"{seed}/{version}/{epoch}").shuffle(order)
        shares = [sorted(order[part::parts]) for part in range(parts)]
        updates += [tuple(index for group in share for index in groups[group]) for share in shares]
    return updates
