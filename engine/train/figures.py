"""What a step reports about itself, summed over micro-batches and ranks.

Token figures are computed on the CPU in float64, so they do not depend on a device's reduction order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(kw_only=True, slots=True)
class TokenFigures:
    """Sums over sampled tokens. ``log_ratio_max``: the largest |log π_trainer − log π_sampler| of any token."""

    tokens: int = 0
    loss: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    mismatch_kl: float = 0.0
    log_ratio_max: float = 0.0

    def add(self, *, logprobs_BT: Tensor, sampler_logprobs_BT: Tensor, entropy_BT: Tensor, mask_BT: Tensor) -> None:
        """Count the masked tokens of one micro-batch.

        Mismatch-KL is the k3 estimate of KL(sampler ‖ trainer): the mean of exp(d) − 1 − d with d = log π_trainer − log π_sampler on tokens
        drawn from the sampler (Schulman 2020, "Approximating KL divergence"): unbiased, never negative, 0 only where both agree.
        """
        trainer_N, sampler_N, entropy_N = (x_BT[mask_BT].detach().cpu().double() for x_BT in (logprobs_BT, sampler_logprobs_BT, entropy_BT))
        if not len(trainer_N):
            return
        difference_N = trainer_N - sampler_N
        self.tokens += len(trainer_N)
        self.entropy += float(entropy_N.sum())
        self.mismatch_kl += float((torch.expm1(difference_N) - difference_N).sum())
        self.log_ratio_max = max(self.log_ratio_max, float(difference_N.abs().max()))

    def reduce(self, world_size: int) -> None:
        """Make every rank's figures those of the whole step."""
        if world_size == 1:
            return
        sums = torch.tensor([self.tokens, self.loss, self.entropy, self.clipped, self.mismatch_kl], dtype=torch.float64)
        largest = torch.tensor([self.log_ratio_max], dtype=torch.float64)
        dist.all_reduce(sums, dist.ReduceOp.SUM)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        tokens, self.loss, self.entropy, self.clipped, self.mismatch_kl = sums.tolist()
        self.tokens, self.log_ratio_max = int(tokens), largest.item()
