"""From trajectories to padded micro-batches of bounded size, the same way every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """B completions, right-padded to T tokens. ``members``: their indices in the step's trajectories; tensors follow that order.

    ``mask_BT`` is true on the sampled tokens: neither on prompts nor on what an environment added between turns.
    ``sampler_logprobs_BT`` stands at the token it belongs to, 0 elsewhere.
    """

    members: tuple[int, ...]
    ids_BT: Tensor
    mask_BT: Tensor
    sampler_logprobs_BT: Tensor


def plan(lengths: Sequence[int], members: Sequence[int], *, max_tokens: int) -> list[tuple[int, ...]]:
    """Split ``members`` (indices into ``lengths``, in tokens) into micro-batches of at most ``max_tokens`` padded tokens.

    Longest first, ties in the given order, so that neighbours pad little and a step that will not fit fails at once. A single
    completion that is longer than ``max_tokens`` gets a micro-batch of its own.
    """
    batches: list[tuple[int, ...]] = []
    current: list[int] = []
    for member in sorted(members, key=lambda index: -lengths[index]):
        if current and (len(current) + 1) * lengths[current[0]] > max_tokens:
            batches.append(tuple(current))
            current = []
        current.append(member)
    return [*batches, tuple(current)] if current else batches


def share_of_rank(batches: Sequence[tuple[int, ...]], *, rank: int, world_size: int) -> list[tuple[int, ...]]:
    """Every ``world_size``-th micro-batch. All ranks get the same number, whatever the data: where one would have none left it gets an
    empty one, and still takes part in each collective."""
    rounds = -(-len(batches) // world_size)
    padded = [*batches, *([()] * (rounds * world_size - len(batches)))]
    return padded[rank::world_size]


def token_count(trajectory: Trajectory) -> int:
    return len(trajectory.prompt_ids) + len(trajectory.completion_ids)


def pack(trajectories: Sequence[Trajectory], members: tuple[int, ...], *, device: str) -> MicroBatch:
    """The tensors of one planned micro-batch. An empty plan becomes one row of two unmasked tokens: work that changes nothing."""
    chosen = [trajectories[index] for index in members]
    width = max((token_count(t) for t in chosen), default=2)
    ids = [_padded([*t.prompt_ids, *t.completion_ids], width, 0) for t in chosen] or [[0] * width]
    mask = [_placed(t, t.sampled_mask(), width, False) for t in chosen] or [[False] * width]
    logprobs = [_placed(t, _spread(t), width, 0.0) for t in chosen] or [[0.0] * width]
    return MicroBatch(
        members=members,
        ids_BT=torch.tensor(ids, dtype=torch.long, device=device),
        mask_BT=torch.tensor(mask, dtype=torch.bool, device=device),
        sampler_logprobs_BT=torch.tensor(logprobs, dtype=torch.float32, device=device),
    )


def _spread(trajectory: Trajectory) -> list[float]:
    """The log-probabilities at their tokens, 0 at those of the environment."""
    logprobs = iter(trajectory.logprobs)
    return [next(logprobs) if sampled else 0.0 for sampled in trajectory.sampled_mask()]


def _placed(trajectory: Trajectory, values: list, width: int, filler: float | bool) -> list:
    """``values`` (one per completion token) behind the prompt, padded to ``width``."""
    return _padded([filler] * len(trajectory.prompt_ids) + values, width, filler)


def _padded(values: list, width: int, filler: float | bool | int) -> list:
    return values + [filler] * (width - len(values))
