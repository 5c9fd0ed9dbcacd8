"""vLLM's LoRA arithmetic on CPUs as dense matrix products. CPU only, behind ``MARLAAS_DENSE_LORA``; loaded in the engine-core process.

vLLM's CPU operators copy A and B of a token's adapter once per token, which takes more than half of the rollout time of a small
model, and read row −1 ("no adapter") as the last slot. Here the A of all adapters in the batch are stacked into one matrix:

    z[T, S·r] = x[T, H] @ A[S·r, H]ᵀ        every row against every adapter in the batch (S of them)
    z        *= mask[T, S·r]                 each row keeps its own adapter's columns; a row without an adapter keeps none
    y[T, O]  += z @ B[S·r, O]                one product; foreign columns are zero

Only slots in use are stacked. A layer's stacks are rebuilt when the slots or their contents change (PyTorch's version counter of the
slot tensors says so), not per step.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.platforms import current_platform
from vllm.v1.worker.cpu_worker import CPUWorker

from engine.device import parse_cores, pin

# A stack may hold slots that no row of this step uses, so that it survives rows coming and going; never more than this factor.
_SLACK = 2


class PinnedWorker(CPUWorker):
    """vLLM's CPU worker, kept on the cores of ``VLLM_CPU_OMP_THREADS_BIND``: without a process of its own, vLLM does not bind it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cores = parse_cores(os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "").replace("nobind", ""))
        pin(cores)
        super().__init__(*args, **kwargs)
        torch.set_num_threads(max(1, len(cores)))


class DenseLoraWorker(PinnedWorker):
    """With ``DensePunica`` in place of vLLM's LoRA operators. Named in ``AsyncEngineArgs(worker_cls=…)``."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        path = f"{DensePunica.__module__}.{DensePunica.__qualname__}"
        type(current_platform).get_punica_wrapper = classmethod(lambda cls: path)
        super().load_model(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class StepRows:
    """Which row uses which adapter in one step. ``slots``: the stacked slots in order. ``mask_TS``: 1 where row t uses ``slots[s]``;
    None when every row uses the only slot. ``columns``: ``mask_TS`` widened to S·r columns, per (r, dtype).
    """

    count: int
    slots: tuple[int, ...]
    mask_TS: torch.Tensor | None
    columns: dict[tuple[int, torch.dtype], torch.Tensor]

    def mask(self, rank: int, dtype: torch.dtype) -> torch.Tensor | None:
        if self.mask_TS is None:
            return None
        if (rank, dtype) not in self.columns:
            self.columns[rank, dtype] = self.mask_TS.to(dtype).repeat_interleave(rank, dim=1)
        return self.columns[rank, dtype]


def step_rows(indices_T: torch.Tensor, slots_before: Sequence[int] = ()) -> StepRows:
    """``indices_T``: the slot of each row, −1 for none. The last step's slots are kept while they cover this step's and are few."""
    used = {index for index in indices_T.unique().tolist() if index >= 0}
    keep = used <= set(slots_before) and len(slots_before) <= _SLACK * len(used)
    slots = tuple(slots_before) if keep else tuple(sorted(used))
    every_row_alike = len(slots) == 1 and bool((indices_T == slots[0]).all())
    mask_TS = None if every_row_alike or not slots else indices_T[:, None] == torch.tensor(slots)[None, :]
    return StepRows(count=indices_T.size(0), slots=slots, mask_TS=mask_TS, columns={})


class Stacks:
    """One layer's stacked weights: ``a_HR`` for all slices side by side, ``b_RO`` one per slice. Rebuilt when ``key`` changes."""

    __slots__ = ("a_HR", "b_RO", "key")

    def __init__(self) -> None:
        self.key: tuple | None = None

    def refresh(self, a_stacked: Sequence[torch.Tensor], b_stacked: Sequence[torch.Tensor], slots: tuple[int, ...]) -> None:
        key = (slots, *(t._version for t in a_stacked), *(t._version for t in b_stacked))
        if key == self.key:
            return
        picked = list(slots)
        # [slots, 1, r, H] → [S·r, H] per slice, slices side by side → one product for q, k and v.
        self.a_HR = torch.cat([a[picked].flatten(0, -2) for a in a_stacked]).t()
        # [slots, 1, O, r] → [S·r, O]
        self.b_RO = [b[picked].flatten(1, -3).squeeze(1).transpose(1, 2).flatten(0, 1).contiguous() for b in b_stacked]
        self.key = key


def add_dense(
    y_TO: torch.Tensor, x_TH: torch.Tensor, stacks: Stacks, rows: StepRows, *, rank: int, scale: float, slice_sizes: Sequence[int]
) -> None:
    """``y += scale · B(A(x))`` per row with its own adapter, slice after slice along the columns of ``y``."""
    z_TR = x_TH.to(stacks.a_HR.dtype) @ stacks.a_HR
    if scale != 1.0:
        z_TR *= scale
    width = len(rows.slots) * rank
    mask_TR = rows.mask(rank, z_TR.dtype)
    offset = 0
    for index, (b_RO, size) in enumerate(zip(stacks.b_RO, slice_sizes, strict=True)):
        part_TR = z_TR[:, index * width : (index + 1) * width]
        if mask_TR is not None:
            part_TR = part_TR * mask_TR
        y_TO[:, offset : offset + size].addmm_(part_TR.to(y_TO.dtype), b_RO.to(y_TO.dtype))
        offset += size


class DensePunica(PunicaWrapperCPU):
    """``PunicaWrapperCPU`` whose linear layers go through ``add_dense``; what it does not know falls to vLLM's own operators."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rows = StepRows(count=0, slots=(), mask_TS=None, columns={})
        self._stacks: dict[int, Stacks] = {}

    def update_metadata(self, mapping: Any, lora_index_to_id: list[int | None], max_loras: int, vocab_size: int, **kwargs: Any) -> None:
        super().update_metadata(mapping, lora_index_to_id, max_loras, vocab_size, **kwargs)
        self._rows = step_rows(self.token_lora_indices, self._rows.slots)

    def add_lora_linear(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: tuple[torch.Tensor, ...],
        lora_b_stacked: tuple[torch.Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        *,
        buffer: tuple[torch.Tensor, ...] | None = None,
        **kwargs: Any,
    ) -> None:
        y_TO, x_TH = y.view(-1, y.shape[-1]), x.reshape(-1, x.shape[-1])
        if buffer is not None or x_TH.size(0) != self._rows.count:
            super().add_lora_linear(y, x, lora_a_stacked, lora_b_stacked, scale, output_slices, buffer=buffer, **kwargs)
            return
        if not self._rows.slots:
            return
        # The slot tensors live as long as their layer, so their address names the layer.
        stacks = self._stacks.setdefault(lora_a_stacked[0].data_ptr(), Stacks())
        stacks.refresh(lora_a_stacked, lora_b_stacked, self._rows.slots)
        rank = lora_a_stacked[0].size(-2)
        add_dense(y_TO, x_TH, stacks, self._rows, rank=rank, scale=scale, slice_sizes=output_slices)
