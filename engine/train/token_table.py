"""One number per sampled token of a step, kept between the step's passes over it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from engine.train.pack import MicroBatch


class TokenTable:
    """A flat vector over the sampled tokens of all completions, in their order. Each rank puts in what it has scored; after ``share``
    all of them have all of it, however later passes split the step.
    """

    def __init__(self, tokens_per_completion: Sequence[int], *, device: str):
        self._counts = list(tokens_per_completion)
        self._starts = torch.tensor([0, *self._counts]).cumsum(0).tolist()
        self._values_N = torch.zeros(self._starts[-1], dtype=torch.float32, device=device)

    def put(self, micro: MicroBatch, values_BT: Tensor) -> None:
        self._values_N[self._places(micro)] = values_BT[micro.mask_BT].detach()

    def get(self, micro: MicroBatch) -> Tensor:
        """``values_BT``, 0 outside the micro-batch's mask."""
        empty_BT = torch.zeros(micro.ids_BT.shape, dtype=torch.float32, device=self._values_N.device)
        return empty_BT.masked_scatter(micro.mask_BT, self._values_N[self._places(micro)])

    def values(self) -> list[float]:
        """All of them, in order."""
        return self._values_N.tolist()

    def share(self, world_size: int) -> None:
        if world_size > 1:
            dist.all_reduce(self._values_N)

    def _places(self, micro: MicroBatch) -> Tensor:
        places = [torch.arange(self._starts[index], self._starts[index] + self._counts[index]) for index in micro.members]
        return torch.cat(places or [torch.arange(0)]).to(self._values_N.device)
