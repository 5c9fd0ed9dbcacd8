"""The correction for sampling with one program and training with another."""

from __future__ import annotations

import torch
from torch import Tensor


def importance_weights(
    old_logprobs_BT: Tensor, sampler_logprobs_BT: Tensor, mask_BT: Tensor, *, level: str, mode: str, cap: float
) -> tuple[Tensor, Tensor]:
    """``(weights_BT, capped_BT)``: how much each token counts, w = π_old / π_sampler bounded by ``cap``, and where it was bounded.

    Neither carries a gradient. Trainer and sampler hold the same weights but compute in different kernels and precisions; without this
    factor the gradient is that of another distribution than the one sampled from.

    ``level``: "token", w of each token; or "sequence", one w per completion, the product over its sampled tokens (exact, but its variance
    grows with length). ``mode``: "truncate", min(w, cap) (truncated importance sampling: Ionides 2008; Yao et al. 2025, "Your efficient RL
    framework secretly brings you off-policy RL training"); "mask", w where w ≤ cap and else 0 (masked importance sampling: Liu et al. 2025,
    "When speed kills stability"); "off", 1.
    """
    difference_BT = (old_logprobs_BT - sampler_logprobs_BT).detach()
    if mode == "off":
        return torch.ones_like(difference_BT), torch.zeros_like(difference_BT, dtype=torch.bool)
    if level == "sequence":
        difference_BT = (difference_BT * mask_BT).sum(-1, keepdim=True).expand_as(difference_BT)
    weights_BT = torch.exp(difference_BT)
    capped_BT = weights_BT > cap  # false for a weight that is not a number: it stays one, and the step is skipped
    return (weights_BT.clamp(max=cap) if mode == "truncate" else weights_BT.masked_fill(capped_BT, 0.0)), capped_BT
