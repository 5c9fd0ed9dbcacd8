"""Policy-gradient losses as plain functions over named-shape tensors.

Shapes: B completions, T positions of prompt and completion; position t holds what concerns token t. ``mask_BT`` is 1 on the sampled
tokens that train. ``weights_BT`` carries the loss's whole normalisation over the *step*, so that summing the losses (and so the
gradients) of any split of the step into micro-batches gives the loss of the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class LossTerms:
    """``loss``: a scalar to differentiate. ``clipped_BT``: 1 where clipping removed the token's gradient."""

    loss: Tensor
    clipped_BT: Tensor


def grpo_weight(*, completion_tokens: int, graded_completions: int) -> float:
    """The weight of each of a completion's tokens: the mean over its tokens, then the mean over the step's graded completions."""
    return 1.0 / (completion_tokens * graded_completions)


def importance_weights(old_logprobs_BT: Tensor, sampler_logprobs_BT: Tensor, cap: float) -> Tensor:
    """min(π_old / π_sampler, cap) per token, without gradient: truncated importance sampling.

    Trainer and sampler hold the same weights but compute in different kernels and precisions; without this factor the gradient is that
    of another distribution than the one sampled from. Truncation bounds its variance (Ionides 2008; Yao et al. 2025, "Your efficient RL
    framework secretly brings you off-policy RL training").
    """
    return torch.exp(old_logprobs_BT - sampler_logprobs_BT).clamp(max=cap).detach()


def grpo_loss(
    *,
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    sampler_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    weights_BT: Tensor,
    clip_low: float,
    clip_high: float,
    importance_cap: float,
) -> LossTerms:
    """− Σ weight · importance · min(ρ·A, clip(ρ, 1 − clip_low, 1 + clip_high)·A), with ρ = π / π_old.

    GRPO's surrogate (DeepSeekMath, arXiv 2402.03300, eq. 3) with DAPO's asymmetric clip range (arXiv 2503.14476, §3.1) and the
    importance weight above. ``old_logprobs_BT`` are the trainer's own at the version that was sampled, so ρ is 1 in the first epoch.
    """
    advantages_B1 = advantages_B.unsqueeze(-1)
    ratio_BT = torch.exp(logprobs_BT - old_logprobs_BT.detach())
    clipped_ratio_BT = ratio_BT.clamp(1.0 - clip_low, 1.0 + clip_high)
    free_BT, bounded_BT = ratio_BT * advantages_B1, clipped_ratio_BT * advantages_B1
    importance_BT = importance_weights(old_logprobs_BT, sampler_logprobs_BT, importance_cap)
    token_loss_BT = -torch.minimum(free_BT, bounded_BT) * importance_BT * weights_BT
    loss = (token_loss_BT * mask_BT).sum()
    clipped_BT = ((bounded_BT < free_BT).to(mask_BT.dtype) * mask_BT).detach()
    return LossTerms(loss=loss, clipped_BT=clipped_BT)
