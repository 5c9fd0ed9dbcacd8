"""What a job's training minimises, put together from its spec: a loss, the importance correction, the penalty for leaving the base.

Σ weight · (importance · loss + kl_coefficient · KL)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.train.importance import importance_weights
from engine.train.kl import kl_penalty
from engine.train.losses import LOSSES, Clip, PolicyTokens, StepTotals
from engine.train_spec import TrainSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """``loss``: a scalar to differentiate. The rest are masked truths per token, for the figures."""

    loss: Tensor
    clipped_low_BT: Tensor
    clipped_high_BT: Tensor
    capped_BT: Tensor


def objective(
    train: TrainSpec, tokens: PolicyTokens, totals: StepTotals, *, sampler_logprobs_BT: Tensor, base_logprobs_BT: Tensor | None
) -> Objective:
    """``base_logprobs_BT`` is needed where ``train.kl_coefficient`` is not 0, and ignored elsewhere."""
    found = LOSSES[train.loss](tokens, totals, Clip(low=train.clip_low, high=train.clip_high, dual=train.dual_clip))
    importance_BT, capped_BT = importance_weights(
        tokens.old_logprobs_BT,
        sampler_logprobs_BT,
        tokens.mask_BT,
        level=train.importance_level,
        mode=train.importance,
        cap=train.importance_cap,
    )
    values_BT = found.values_BT * importance_BT
    if train.kl_coefficient:
        values_BT = values_BT + train.kl_coefficient * kl_penalty(tokens.logprobs_BT, base_logprobs_BT, tokens.mask_BT, train.kl_estimator)
    mask_BT = tokens.mask_BT.bool()
    return Objective(
        loss=(values_BT * found.weights_BT).sum(),
        clipped_low_BT=found.clipped_low_BT & mask_BT,
        clipped_high_BT=found.clipped_high_BT & mask_BT,
        capped_BT=capped_BT & mask_BT,
    )
