"""LoRA's arithmetic with fewer passes over memory than PEFT's layer makes: for a small base the passes cost more than the products.

    h = x Aᵀ        y = x Wᵀ + s · h Bᵀ                                  s = alpha / rank (Hu et al., 2021, arXiv 2106.09685, §4.1)
    gh = s · g B    ∂x = g W + gh A    ∂A = ghᵀ x    ∂B = s · gᵀ h       g = ∂y; W is frozen

PEFT builds the same y out of five operations, each with a backward of its own and with a copy of y; here the sums happen inside the
products (``addmm``).
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor
from torch.autograd.function import once_differentiable


class LoraProduct(torch.autograd.Function):
    """``y_NO`` of ``x_NI``, the frozen ``w_OI``, ``a_RI``, ``b_OR`` and the scale; gradients for x, A and B."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, w_OI: Tensor, a_RI: Tensor, b_OR: Tensor, scale: float) -> Tensor:
        h_NR = x_NI @ a_RI.t()
        y_NO = x_NI @ w_OI.t()
        y_NO.addmm_(h_NR, b_OR.t(), alpha=scale)
        ctx.save_for_backward(x_NI, w_OI, a_RI, b_OR, h_NR)
        ctx.scale = scale
        return y_NO

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_NO: Tensor) -> tuple[Tensor | None, None, Tensor, Tensor, None]:
        x_NI, w_OI, a_RI, b_OR, h_NR = ctx.saved_tensors
        gh_NR = (g_NO @ b_OR).mul_(ctx.scale)
        gx_NI = (g_NO @ w_OI).addmm_(gh_NR, a_RI) if ctx.needs_input_grad[0] else None
        return gx_NI, None, gh_NR.t() @ x_NI, (g_NO.t() @ h_NR).mul_(ctx.scale), None


class FusedLoraLinear(Linear):
    """PEFT's LoRA layer over ``nn.Linear``, computed by ``LoraProduct`` where that is the same thing: one adapter, no bias, one dtype."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        name = self._only_adapter()
        if args or kwargs or name is None or not self._is_plain(x, name):
            return super().forward(x, *args, **kwargs)
        y_NO = LoraProduct.apply(
            x.reshape(-1, x.shape[-1]), self.base_layer.weight, self.lora_A[name].weight, self.lora_B[name].weight, self.scaling[name]
        )
        return y_NO.view(*x.shape[:-1], y_NO.shape[-1])

    def _only_adapter(self) -> str | None:
        if self.disable_adapters or self.merged:
            return None
        names = [name for name in self.active_adapters if name in self.lora_A]
        return names[0] if len(names) == 1 else None

    def _is_plain(self, x: Tensor, name: str) -> bool:
        base, a = self.base_layer, self.lora_A[name].weight
        plain = base.bias is None and name not in self.lora_variant and isinstance(self.lora_dropout[name], torch.nn.Identity)
        return plain and not base.weight.requires_grad and x.dtype == base.weight.dtype == a.dtype
