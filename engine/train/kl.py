"""The distance to the base model, from the log-probabilities of sampled tokens under both (Schulman 2020, "Approximating KL divergence").

With d = log π − log π_base at a token that π sampled:

    k1 = d                          unbiased, high variance, can be negative
    k2 = d² / 2                     biased, low variance
    k3 = exp(−d) − 1 + d            unbiased, low variance, never negative
"""

from __future__ import annotations

import torch
from torch import Tensor


def kl_estimate(logprobs_BT: Tensor, base_logprobs_BT: Tensor, estimator: str) -> Tensor:
    """KL(π ‖ base) in nats, one estimate per token."""
    difference_BT = logprobs_BT - base_logprobs_BT
    match estimator:
        case "k1":
            return difference_BT
        case "k2":
            return difference_BT.square() / 2
        case "k3":
            return torch.expm1(-difference_BT) + difference_BT
    raise ValueError(f"unknown estimator {estimator!r}; there are k1, k2 and k3")


def kl_penalty(logprobs_BT: Tensor, base_logprobs_BT: Tensor, mask_BT: Tensor, estimator: str) -> Tensor:
    """The estimate per token, to be added to a loss: its value is ``kl_estimate``, its gradient one that lowers the divergence.

    k2 and k3 are differentiated as they are (k3: GRPO, arXiv 2402.03300, eq. 4). k1's own gradient is ∇log π, whose mean is zero: as a
    loss it would do nothing. It is a penalty on the reward, so its gradient is ∇log π times the k1 of this and all later tokens of the
    completion, the policy gradient of the whole sequence's divergence (Tang & Munos, arXiv 2506.09477).
    """
    estimate_BT = kl_estimate(logprobs_BT, base_logprobs_BT, estimator)
    if estimator != "k1":
        return estimate_BT
    masked_BT = (estimate_BT * mask_BT).detach()
    to_go_BT = masked_BT.flip(-1).cumsum(-1).flip(-1)
    return estimate_BT.detach() + to_go_BT * (logprobs_BT - logprobs_BT.detach())
