"""vLLM's LoRA arithmetic on CPUs as dense matrix products. CPU only, behind ``MARLAAS_DENSE_LORA``; loaded in the engine-core process.

vLLM's CPU operators copy A and B of a token's adapter once per token, which takes more than half of the rollout time of a small
model, and read row −1 ("no adapter") as the last slot. Here the rows of a step are gathered by adapter, each group padded to the
largest (S groups of G rows), and each layer does one batched product for all its A and one per slice for its B:

    z[S, G, n·r] = x[S, G, H] @ A[S, H, n·r]          n slices side by side (q, k, v)
    y[T, O]     += (z[S, G, r] @ B[S, r, O])[place]    every row takes its result back; rows without an adapter take none

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

# A stack may hold slots that no row of this step uses, so that it survives rows coming and going: at most this share of those in use.
_SLACK = 4


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


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRows:
    """Which row uses which adapter in one step of ``count`` rows. ``slots``: the stacked slots in order.

    ``source_SG``: the row at each place of the padded groups (padding repeats row 0, its results are never taken).
    ``rows``: the rows that have an adapter, None for all of them; ``place``: where in the groups each of those stands.
    Both are None when every row uses the only slot: nothing has to move then.
    """

    count: int
    slots: tuple[int, ...] = ()
    source_SG: torch.Tensor | None = None
    place: torch.Tensor | None = None
    rows: torch.Tensor | None = None


def step_rows(indices_T: torch.Tensor, slots_before: Sequence[int] = ()) -> StepRows:
    """``indices_T``: the slot of each row, −1 for none. The last step's slots are kept while they cover this step's and few are idle."""
    used = {index for index in indices_T.unique().tolist() if index >= 0}
    keep = used <= set(slots_before) and len(slots_before) - len(used) <= len(used) // _SLACK
    slots = tuple(slots_before) if keep else tuple(sorted(used))
    count = indices_T.size(0)
    has_adapter_T = indices_T >= 0
    every_row = bool(has_adapter_T.all())
    if not slots or (every_row and len(slots) == 1):
        return StepRows(count=count, slots=slots)
    rows = torch.arange(count) if every_row else has_adapter_T.nonzero().squeeze(1)
    group_of_slot = torch.zeros(max(slots) + 1, dtype=torch.long)
    group_of_slot[list(slots)] = torch.arange(len(slots))
    groups = group_of_slot[indices_T[rows]]
    place, height = _places(groups, len(slots))
    source = torch.zeros(len(slots) * height, dtype=torch.long)
    source[place] = rows
    return StepRows(count=count, slots=slots, source_SG=source.view(len(slots), height), place=place, rows=None if every_row else rows)


def _places(groups: torch.Tensor, group_count: int) -> tuple[torch.Tensor, int]:
    """For each member its place in ``group_count`` groups of equal height laid end to end; and that height."""
    sizes = torch.bincount(groups, minlength=group_count)
    height = int(sizes.max())
    order = groups.argsort(stable=True)
    in_group = torch.arange(groups.size(0)) - (sizes.cumsum(0) - sizes)[groups[order]]
    place = torch.empty_like(groups)
    place[order] = groups[order] * height + in_group
    return place, height


class Stacks:
    """One layer's stacked weights: ``a_SHR`` for all slices side by side, ``b_SRO`` one per slice. Rebuilt when ``key`` changes."""

    __slots__ = ("a_SHR", "b_SRO", "key")

    def __init__(self) -> None:
        self.key: tuple | None = None

    def refresh(self, a_stacked: Sequence[torch.Tensor], b_stacked: Sequence[torch.Tensor], slots: tuple[int, ...]) -> None:
        key = (slots, *(t._version for t in a_stacked), *(t._version for t in b_stacked))
        if key == self.key:
            return
        picked = list(slots)
        # vLLM's [slots, 1, r, H] and [slots, 1, O, r]
        self.a_SHR = torch.cat([a[picked].squeeze(1) for a in a_stacked], dim=1).transpose(1, 2).contiguous()
        self.b_SRO = [b[picked].squeeze(1).transpose(1, 2).contiguous() for b in b_stacked]
        self.key = key


def add_dense(y_TO: torch.Tensor, x_TH: torch.Tensor, stacks: Stacks, rows: StepRows, *, scale: float, slice_sizes: Sequence[int]) -> None:
    """``y += scale · B(A(x))`` per row with its own adapter, slice after slice along the columns of ``y``."""
    x_TH = x_TH.to(stacks.a_SHR.dtype)
    groups_SGH = x_TH.unsqueeze(0) if rows.source_SG is None else x_TH[rows.source_SG]
    z_SGR = torch.bmm(groups_SGH, stacks.a_SHR)
    if scale != 1.0:
        z_SGR *= scale
    offset, rank = 0, stacks.b_SRO[0].size(1)
    for index, (b_SRO, size) in enumerate(zip(stacks.b_SRO, slice_sizes, strict=True)):
        part_SGR = z_SGR[:, :, index * rank : (index + 1) * rank].to(y_TO.dtype)
        _add_slice(y_TO[:, offset : offset + size], part_SGR, b_SRO.to(y_TO.dtype), rows)
        offset += size


def _add_slice(y_TO: torch.Tensor, part_SGR: torch.Tensor, b_SRO: torch.Tensor, rows: StepRows) -> None:
    if rows.place is None:
        y_TO.addmm_(part_SGR[0], b_SRO[0])
        return
    results_TO = torch.bmm(part_SGR, b_SRO).flatten(0, 1)[rows.place]
    if rows.rows is None:
        y_TO += results_TO
    else:
        y_TO.index_add_(0, rows.rows, results_TO)


class DensePunica(PunicaWrapperCPU):
    """``PunicaWrapperCPU`` whose linear layers go through ``add_dense``; what it does not know falls to vLLM's own operators."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rows = StepRows(count=0)
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
        add_dense(y_TO, x_TH, stacks, self._rows, scale=scale, slice_sizes=output_slices)
