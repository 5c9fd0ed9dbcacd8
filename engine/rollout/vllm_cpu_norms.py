"""vLLM's own C++ RMS norms, used on CPUs too: they are built in there, but its list of kernels offers them to accelerators only.

What it takes instead, a chain of seven tensor operations, costs four to five times as much on a small model's rows. Loaded in the
engine-core process, after vLLM's CPU kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from vllm import ir

PROVIDER = "marlaas_cpu_c"


def install() -> None:
    """Have the norms of this process computed by them, where they can; by vLLM's own tensor operations where they cannot."""
    if PROVIDER not in ir.ops.rms_norm.impls:
        ir.ops.rms_norm.register_impl(PROVIDER, supports_args=_takes)(_rms_norm)
        ir.ops.fused_add_rms_norm.register_impl(PROVIDER, supports_args=_takes_residual, inplace=True)(_fused_add_rms_norm)
    for op in (ir.ops.rms_norm, ir.ops.fused_add_rms_norm):
        op.set_default([PROVIDER, "native"])


def _takes(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> bool:
    return variance_size is None and weight is not None and weight.dtype == x.dtype and x.is_contiguous()


def _takes_residual(x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> bool:
    return _takes(x, weight, epsilon, variance_size) and x_residual.is_contiguous() and x_residual.dtype == x.dtype


def _rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    normed = torch.empty_like(x)
    torch.ops._C.rms_norm.default(normed, x, weight, epsilon)
    return normed


def _fused_add_rms_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Both in place: ``x_residual`` becomes the sum, ``x`` its norm."""
    torch.ops._C.fused_add_rms_norm.default(x, x_residual, weight, epsilon)
    return x, x_residual
