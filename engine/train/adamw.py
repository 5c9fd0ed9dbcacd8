"""AdamW over one flat vector. A job's whole adapter is one vector, so an update is a dozen kernels instead of a dozen per layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(kw_only=True, slots=True)
class AdamWState:
    """``mean_P`` and ``square_P``: running moments of the gradient, updated in place; ``updates``: how many there were."""

    mean_P: Tensor
    square_P: Tensor
    updates: int


@torch.no_grad()
def adamw_update(values_P: Tensor, gradient_P: Tensor, state: AdamWState, *, learning_rate: float, weight_decay: float) -> None:
    """One decoupled-weight-decay Adam update of ``values_P``, in place (Loshchilov & Hutter, arXiv 1711.05101, algorithm 2).

    A learning rate of 0 moves the moments and leaves ``values_P`` untouched to the bit.
    """
    state.updates += 1
    state.mean_P.lerp_(gradient_P, 1 - BETA1)
    state.square_P.mul_(BETA2).addcmul_(gradient_P, gradient_P, value=1 - BETA2)
    if learning_rate == 0:
        return
    step_size = learning_rate / (1 - BETA1**state.updates)
    denominator_P = (state.square_P / (1 - BETA2**state.updates)).sqrt_().add_(EPSILON)
    values_P.mul_(1 - learning_rate * weight_decay)
    values_P.addcdiv_(state.mean_P, denominator_P, value=-step_size)
