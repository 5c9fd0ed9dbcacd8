"""The learning rate of each step: a pure function of the spec and the step's number, so a resumed job has the rate it would have had."""

from __future__ import annotations

import math

from engine.train_spec import TrainSpec


def learning_rate_at(train: TrainSpec, version: int) -> float:
    """The rate of the step that trains from ``version`` (0, 1, … ``train.steps`` − 1).

    Warm-up: rate · (version + 1) / (warmup_steps + 1), so that no step is without effect and step ``warmup_steps`` has the full rate.
    Then "constant", or "cosine": rate · (1 + cos(π · p)) / 2 with p the share of the remaining steps that lie behind (SGDR without
    restarts, Loshchilov & Hutter, arXiv 1608.03983, eq. 5).
    """
    if version < train.warmup_steps:
        return train.learning_rate * (version + 1) / (train.warmup_steps + 1)
    if train.schedule == "constant":
        return train.learning_rate
    behind = min(1.0, (version - train.warmup_steps) / (train.steps - train.warmup_steps))
    return train.learning_rate * (1 + math.cos(math.pi * behind)) / 2
