"""Policy-gradient losses as plain functions over named-shape tensors.

Shapes: B completions, T positions of prompt and completion; position t holds what concerns token t. A loss returns a value per token and
that token's weight in the *step*, so that the weighted sums (and so the gradients) of any split into micro-batches add up to the step's.

Notation: o_i is completion i of the step's N, |o_i| its sampled tokens, A_i its advantage, ρ = π / π_old at one token. π_old is the
trainer's own policy at the version that was sampled; ρ is therefore 1 at the first update of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyTokens:
    """``mask_BT``: 1.0 at the sampled tokens that train. The log-probabilities are the trainer's, now and at the step's first version."""

    logprobs_BT: Tensor
    old_logprobs_BT: Tensor
    advantages_B: Tensor
    mask_BT: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTotals:
    """What the weights are made of, over everything that counts in one optimizer update: its completions (N), their tokens, and the most
    tokens that one completion may have. Fractions where an update has a share of the step.
    """

    completions: float
    tokens: float
    longest: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Clip:
    """The ratio's range, 1 − ``low`` to 1 + ``high``; ``dual``: its bound for negative advantages (None: none)."""

    low: float
    high: float
    dual: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLoss:
    """The loss is Σ ``weights_BT`` · ``values_BT``; weights are 0 outside the mask. ``clipped_low_BT`` and ``clipped_high_BT`` are true
    where the ratio was below or above its range and the range decided.
    """

    values_BT: Tensor
    weights_BT: Tensor
    clipped_low_BT: Tensor
    clipped_high_BT: Tensor

    @property
    def total(self) -> Tensor:
        return (self.values_BT * self.weights_BT).sum()


Loss = Callable[[PolicyTokens, StepTotals, Clip], TokenLoss]


def grpo_loss(tokens: PolicyTokens, totals: StepTotals, clip: Clip) -> TokenLoss:
    """− 1/N Σ_i 1/|o_i| Σ_t min(ρ·A, clip(ρ, 1 − low, 1 + high)·A): the mean over a completion's tokens, then over completions.

    GRPO (DeepSeekMath, arXiv 2402.03300, eq. 3) with DAPO's asymmetric range (arXiv 2503.14476, §3.1).
    """
    return _clipped_surrogate(tokens, clip, _token_ratio(tokens), _mean_of_means(tokens, totals))


def dr_grpo_loss(tokens: PolicyTokens, totals: StepTotals, clip: Clip) -> TokenLoss:
    """− 1/(N·L) Σ_i Σ_t min(ρ·A, clip(ρ)·A), with the constant L = the longest that a completion can be.

    Dr. GRPO (arXiv 2503.20783, §3.2 and listing 1): dividing by |o_i| makes long wrong answers cheap, a constant does not. The paper also
    leaves out the division by the group's deviation: that is the advantage ``unscaled``.
    """
    return _clipped_surrogate(tokens, clip, _token_ratio(tokens), tokens.mask_BT / (totals.completions * totals.longest))


def dapo_loss(tokens: PolicyTokens, totals: StepTotals, clip: Clip) -> TokenLoss:
    """− 1/Σ_i|o_i| Σ_i Σ_t min(ρ·A, clip(ρ, 1 − low, 1 + high)·A): the mean over all tokens, so long completions count for more.

    DAPO's token-level loss (arXiv 2503.14476, eq. 8 and §3.3).
    """
    return _clipped_surrogate(tokens, clip, _token_ratio(tokens), tokens.mask_BT / totals.tokens)


def gspo_loss(tokens: PolicyTokens, totals: StepTotals, clip: Clip) -> TokenLoss:
    """− 1/N Σ_i min(s·A, clip(s, 1 − low, 1 + high)·A), with s = (π(o_i) / π_old(o_i))^(1/|o_i|), the geometric mean of the token ratios.

    GSPO (arXiv 2507.18071, eq. 5 to 7). One ratio per completion: a whole completion is clipped or none of it. Each token carries the
    completion's value, weighed by 1/|o_i|.
    """
    return _clipped_surrogate(tokens, clip, _sequence_ratio(tokens), _mean_of_means(tokens, totals))


def cispo_loss(tokens: PolicyTokens, totals: StepTotals, clip: Clip) -> TokenLoss:
    """− 1/Σ_i|o_i| Σ_i Σ_t sg[clip(ρ, 1 − low, 1 + high)]·A·log π: the ratio is clipped as a weight, so that no token loses its gradient.

    CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5); sg stops the gradient. ``clip.dual`` has no place here.
    """
    ratio_BT = _token_ratio(tokens).detach()
    values_BT = -ratio_BT.clamp(1.0 - clip.low, 1.0 + clip.high) * tokens.advantages_B.unsqueeze(-1) * tokens.logprobs_BT
    return TokenLoss(
        values_BT=values_BT,
        weights_BT=tokens.mask_BT / totals.tokens,
        clipped_low_BT=ratio_BT < 1.0 - clip.low,
        clipped_high_BT=ratio_BT > 1.0 + clip.high,
    )


LOSSES: dict[str, Loss] = {"grpo": grpo_loss, "dr_grpo": dr_grpo_loss, "dapo": dapo_loss, "gspo": gspo_loss, "cispo": cispo_loss}


def _clipped_surrogate(tokens: PolicyTokens, clip: Clip, ratio_BT: Tensor, weights_BT: Tensor) -> TokenLoss:
    """− min(ρ·A, clip(ρ)·A) per token; for A < 0 and with ``clip.dual`` = c, − max(that min, c·A).

    The dual clip (Ye et al., arXiv 1912.09729) bounds the loss where a bad completion became much more likely, c > 1.
    """
    advantages_B1 = tokens.advantages_B.unsqueeze(-1)
    free_BT, bounded_BT = ratio_BT * advantages_B1, ratio_BT.clamp(1.0 - clip.low, 1.0 + clip.high) * advantages_B1
    decided_BT = (bounded_BT < free_BT).detach()
    gain_BT = torch.minimum(free_BT, bounded_BT)
    rising_B1 = advantages_B1 > 0
    clipped_low_BT, clipped_high_BT = decided_BT & ~rising_B1, decided_BT & rising_B1
    if clip.dual is not None:
        floored_BT = (gain_BT < clip.dual * advantages_B1).detach() & (advantages_B1 < 0)
        gain_BT = torch.where(floored_BT, clip.dual * advantages_B1, gain_BT)
        clipped_high_BT = clipped_high_BT | floored_BT
    return TokenLoss(values_BT=-gain_BT, weights_BT=weights_BT, clipped_low_BT=clipped_low_BT, clipped_high_BT=clipped_high_BT)


def _token_ratio(tokens: PolicyTokens) -> Tensor:
    return torch.exp(tokens.logprobs_BT - tokens.old_logprobs_BT.detach())


def _sequence_ratio(tokens: PolicyTokens) -> Tensor:
    log_ratio_BT = (tokens.logprobs_BT - tokens.old_logprobs_BT.detach()) * tokens.mask_BT
    return torch.exp(log_ratio_BT.sum(-1, keepdim=True) / _lengths(tokens)).expand_as(log_ratio_BT)


def _mean_of_means(tokens: PolicyTokens, totals: StepTotals) -> Tensor:
    return tokens.mask_BT / (_lengths(tokens) * totals.completions)


def _lengths(tokens: PolicyTokens) -> Tensor:
    """Sampled tokens of each completion, of shape B1; 1 for the empty row of a rank that has nothing to do."""
    return tokens.mask_BT.sum(-1, keepdim=True).clamp(min=1.0)
