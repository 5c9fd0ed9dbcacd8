"""What a step reports about itself, summed over micro-batches and ranks.

Token figures are computed on the CPU in float64, so they do not depend on a device's reduction order.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
import torch.distributed as dist
from torch import Tensor

from engine.train.kl import kl_estimate
from engine.train.objective import Objective

# Not a sum: over ranks the largest counts.
LARGEST = "log_ratio_max"


@dataclass(kw_only=True, slots=True)
class TokenFigures:
    """Sums over tokens: ``tokens`` of them sampled, at the step's first version; ``updated`` of them differentiated, once per update.

    ``log_ratio_max``: the largest |log π_trainer − log π_sampler| of any token. ``loss`` is summed over updates.
    """

    tokens: float = 0
    entropy: float = 0.0
    mismatch_kl: float = 0.0
    base_kl: float = 0.0
    log_ratio_max: float = 0.0
    updated: float = 0
    loss: float = 0.0
    clipped_low: float = 0.0
    clipped_high: float = 0.0
    capped: float = 0.0

    def add(
        self,
        *,
        logprobs_BT: Tensor,
        sampler_logprobs_BT: Tensor,
        entropy_BT: Tensor,
        mask_BT: Tensor,
        base_logprobs_BT: Tensor | None = None,
    ) -> None:
        """Count the masked tokens of one micro-batch, at the version they were sampled from.

        Mismatch-KL is the k3 estimate of KL(sampler ‖ trainer): the mean of exp(d) − 1 − d with d = log π_trainer − log π_sampler on tokens
        drawn from the sampler (Schulman 2020, "Approximating KL divergence"): unbiased, never negative, 0 only where both agree. The
        divergence from the base model is k3 as well, whatever estimator the loss has.
        """
        trainer_N, sampler_N, entropy_N = (_picked(x_BT, mask_BT) for x_BT in (logprobs_BT, sampler_logprobs_BT, entropy_BT))
        if not len(trainer_N):
            return
        difference_N = trainer_N - sampler_N
        self.tokens += len(trainer_N)
        self.entropy += float(entropy_N.sum())
        self.mismatch_kl += float((torch.expm1(difference_N) - difference_N).sum())
        self.log_ratio_max = max(self.log_ratio_max, float(difference_N.abs().max()))
        if base_logprobs_BT is not None:
            self.base_kl += float(kl_estimate(trainer_N, _picked(base_logprobs_BT, mask_BT), "k3").sum())

    def add_update(self, found: Objective, mask_BT: Tensor) -> None:
        """Count what one micro-batch of one optimizer update did."""
        masks = (mask_BT, found.clipped_low_BT, found.clipped_high_BT, found.capped_BT)
        sums = torch.stack([found.loss.detach().float(), *(mask.sum().float() for mask in masks)]).tolist()
        for name, value in zip(("loss", "updated", "clipped_low", "clipped_high", "capped"), sums, strict=True):
            setattr(self, name, getattr(self, name) + value)

    def reduce(self, world_size: int) -> None:
        """Make every rank's figures those of the whole step."""
        if world_size == 1:
            return
        summed = [field.name for field in fields(self) if field.name != LARGEST]
        sums = torch.tensor([getattr(self, name) for name in summed], dtype=torch.float64)
        largest = torch.tensor([self.log_ratio_max], dtype=torch.float64)
        dist.all_reduce(sums, dist.ReduceOp.SUM)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        for name, value in zip(summed, sums.tolist(), strict=True):
            setattr(self, name, value)
        self.log_ratio_max = largest.item()


def _picked(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return values_BT[mask_BT].detach().cpu().double()
