"""vLLM's LoRA arithmetic on CPUs as dense matrix products. CPU only, behind ``MARLAAS_DENSE_LORA``; loaded in the engine-core process.

vLLM's CPU operators copy A and B of a token's adapter once per token, which takes more than half of the rollout time of a small
model, and read row −1 ("no adapter") as the last slot. Here the rows of a step are gathered by adapter, each group padded to the
largest (S groups of G rows), and each layer does two batched products:

    z[S, G, n·r] = x[S, G, H] @ A[S, H, n·r]          n slices side by side (q, k, v)
    y[T, O]     += (z[S, G, n·r] @ B[S, n·r, O])[place]    B is block-diagonal, a block per slice

Where one job's prompts come in beside others' single tokens, padding would cost more than the rows themselves: then each group, at its own
height, has two products of its own. Every row takes its result back; rows without an adapter take none. Only slots in use are stacked. A
slot keeps its place in the stacks for as long as it is used, so a new adapter costs the writing of its own place in each layer and no more.
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

from engine.device import CALCULATES, let_others_go_first, parse_cores, pin
from engine.rollout import vllm_cpu_norms

# A stack may hold slots that no row of this step uses, so that it survives rows coming and going: at most this share of those in use.
_SLACK = 4
# Calls for a group of its own cost as much as this many rows of padding (measured: about 30 µs against 1.5 µs, and alike in larger models).
_CALLS_IN_ROWS = 20


class PinnedWorker(CPUWorker):
    """vLLM's CPU worker, kept on the cores of ``VLLM_CPU_OMP_THREADS_BIND``: without a process of its own, vLLM does not bind it.

    It lets the process go first that feeds it, on the same cores.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cores = parse_cores(os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "").replace("nobind", ""))
        pin(cores)
        let_others_go_first(CALCULATES)
        super().__init__(*args, **kwargs)
        vllm_cpu_norms.install()  # vLLM has just chosen its own
        torch.set_num_threads(max(1, len(cores)))


class DenseLoraWorker(PinnedWorker):
    """With ``DensePunica`` in place of vLLM's LoRA operators. Named in ``AsyncEngineArgs(worker_cls=…)``."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        path = f"{DensePunica.__module__}.{DensePunica.__qualname__}"
        type(current_platform).get_punica_wrapper = classmethod(lambda cls: path)
        super().load_model(*args, **kwargs)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRows:
    """Which row uses which adapter in one step of ``count`` rows. ``slots``: the stacked slots, by their place in the stacks.

    ``source``: the row at each place of the groups, laid end to end (padding repeats row 0, its results are never taken).
    ``heights``: the rows of each group where they are not padded to one height.
    ``rows``: the rows that have an adapter, None for all of them; ``place``: where in the groups each of those stands.
    All are None when every row uses the only slot: nothing has to move then.
    """

    count: int
    slots: tuple[int, ...] = ()
    heights: tuple[int, ...] | None = None
    source: torch.Tensor | None = None
    place: torch.Tensor | None = None
    rows: torch.Tensor | None = None


def step_rows(indices_T: torch.Tensor, slots_before: Sequence[int] = ()) -> StepRows:
    """``indices_T``: the slot of each row, −1 for none. ``slots_before``: the last step's stack."""
    used = {index for index in indices_T.unique().tolist() if index >= 0}
    slots = places_of(used, slots_before)
    count = indices_T.size(0)
    has_adapter_T = indices_T >= 0
    every_row = bool(has_adapter_T.all())
    if not slots or (every_row and len(slots) == 1):
        return StepRows(count=count, slots=slots)
    rows = torch.arange(count) if every_row else has_adapter_T.nonzero().squeeze(1)
    group_of_slot = torch.zeros(max(slots) + 1, dtype=torch.long)
    group_of_slot[list(slots)] = torch.arange(len(slots))
    groups = group_of_slot[indices_T[rows]]
    sizes = torch.bincount(groups, minlength=len(slots))
    height = int(sizes.max())
    padded = height * len(slots) - rows.size(0) <= _CALLS_IN_ROWS * len(slots)
    starts = torch.arange(len(slots)) * height if padded else sizes.cumsum(0) - sizes
    place = _places(groups, sizes, starts)
    source = torch.zeros(len(slots) * height if padded else rows.size(0), dtype=torch.long)
    source[place] = rows
    heights = None if padded else tuple(sizes.tolist())
    return StepRows(count=count, slots=slots, heights=heights, source=source, place=place, rows=None if every_row else rows)


def places_of(used: set[int], before: Sequence[int]) -> tuple[int, ...]:
    """The slots of the next stack: those still in use stay where they are, new ones take the places of others.

    Slots that this step does not use may stay while they are few: they are often back in the next one.
    """
    new = sorted(used - set(before))
    slots = [new.pop(0) if slot not in used and new else slot for slot in before]
    idle = [slot for slot in slots if slot not in used]
    if len(idle) > len(used) // _SLACK:
        slots = [slot for slot in slots if slot in used]
    return (*slots, *new)


def _places(groups: torch.Tensor, sizes: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """For each member its place where group g has ``sizes[g]`` members, in their order, from ``starts[g]`` on."""
    order = groups.argsort(stable=True)
    in_group = torch.arange(groups.size(0)) - (sizes.cumsum(0) - sizes)[groups[order]]
    place = torch.empty_like(groups)
    place[order] = starts[groups[order]] + in_group
    return place


class Stacks:
    """One layer's stacked weights, all slices side by side: ``a_SHR`` and the block-diagonal ``b_SRO``.

    They are as wide as the widest adapter in them, not as the widest that may come (the width of vLLM's slots). A place is written anew
    when another slot or another adapter has it. PyTorch's version counters tell that slots have changed at all; when no adapter's coming
    or going explains it, everything is written anew.
    """

    __slots__ = ("_held", "_ids", "_rank", "_versions", "a_SHR", "b_SRO")

    def __init__(self) -> None:
        self._held: list[tuple[int, int | None]] = []
        self._ids: tuple[int | None, ...] = ()
        self._versions: tuple[int, ...] = ()
        self._rank = 0

    def refresh(
        self, a_stacked: Sequence[torch.Tensor], b_stacked: Sequence[torch.Tensor], slots: tuple[int, ...], ids: tuple[int | None, ...]
    ) -> None:
        """``a_stacked``, ``b_stacked``: vLLM's [slots, 1, r, H] and [slots, 1, O, r], one per slice; ``ids``: the adapter in each slot."""
        wanted = [(slot, ids[slot]) for slot in slots]
        versions = tuple(tensor._version for tensor in (*a_stacked, *b_stacked))
        if wanted == self._held and versions == self._versions:
            return
        explained = versions == self._versions or ids != self._ids
        known = self._held if explained and len(wanted) == len(self._held) else [None] * len(wanted)
        stale = [place for place, held in enumerate(wanted) if held != known[place]]
        if known != self._held or _rank(a_stacked, [wanted[place][0] for place in stale]) > self._rank:
            self._resize(a_stacked, b_stacked, slots)
            stale = range(len(wanted))
        for place in stale:
            self._write(place, slots[place], a_stacked, b_stacked)
        self._held, self._ids, self._versions = wanted, ids, versions

    def _resize(self, a_stacked: Sequence[torch.Tensor], b_stacked: Sequence[torch.Tensor], slots: Sequence[int]) -> None:
        self._rank = max(1, _rank(a_stacked, slots))
        width, outputs = len(a_stacked) * self._rank, sum(b.shape[2] for b in b_stacked)
        self.a_SHR = torch.empty(len(slots), a_stacked[0].shape[3], width, dtype=a_stacked[0].dtype)
        self.b_SRO = torch.zeros(len(slots), width, outputs, dtype=b_stacked[0].dtype)

    def _write(self, place: int, slot: int, a_stacked: Sequence[torch.Tensor], b_stacked: Sequence[torch.Tensor]) -> None:
        row, column, rank = 0, 0, self._rank
        for a, b in zip(a_stacked, b_stacked, strict=True):
            outputs = b.shape[2]
            self.a_SHR[place, :, row : row + rank] = a[slot, 0, :rank].t()
            self.b_SRO[place, row : row + rank, column : column + outputs] = b[slot, 0, :, :rank].t()
            row, column = row + rank, column + outputs


def _rank(a_stacked: Sequence[torch.Tensor], slots: Sequence[int]) -> int:
    """Of the widest adapter in ``slots``: vLLM fills the rows of A behind an adapter's own with zeros."""
    if not slots:
        return 0
    held_R = torch.stack([(a[list(slots), 0] != 0).any(dim=2).any(dim=0) for a in a_stacked]).any(dim=0)
    return int(held_R.nonzero().max()) + 1 if held_R.any() else 0


def add_dense(y_TO: torch.Tensor, x_TH: torch.Tensor, stacks: Stacks, rows: StepRows, *, scale: float) -> None:
    """``y += scale · B(A(x))`` per row with its own adapter."""
    x_TH = x_TH.to(stacks.a_SHR.dtype)
    a_SHR, b_SRO = stacks.a_SHR, stacks.b_SRO.to(y_TO.dtype)
    if rows.place is None:
        y_TO.addmm_((x_TH @ a_SHR[0]).to(y_TO.dtype), b_SRO[0], alpha=scale)
        return
    gathered_PH = x_TH.index_select(0, rows.source)
    if rows.heights is not None:
        y_TO.index_add_(0, rows.source, _by_group(gathered_PH, a_SHR, b_SRO, rows.heights), alpha=scale)
        return
    results_TO = _padded(gathered_PH, a_SHR, b_SRO).index_select(0, rows.place)
    if rows.rows is None:
        y_TO.add_(results_TO, alpha=scale)
    else:
        y_TO.index_add_(0, rows.rows, results_TO, alpha=scale)


def _padded(x_PH: torch.Tensor, a_SHR: torch.Tensor, b_SRO: torch.Tensor) -> torch.Tensor:
    """``[S · G, O]`` of groups of equal height."""
    z_SGR = torch.bmm(x_PH.view(a_SHR.size(0), -1, x_PH.size(1)), a_SHR)
    return torch.bmm(z_SGR.to(b_SRO.dtype), b_SRO).flatten(0, 1)


def _by_group(x_PH: torch.Tensor, a_SHR: torch.Tensor, b_SRO: torch.Tensor, heights: Sequence[int]) -> torch.Tensor:
    """``[P, O]`` of groups of these heights."""
    results_PO = torch.empty(x_PH.size(0), b_SRO.size(2), dtype=b_SRO.dtype)
    for place, (x_GH, results_GO) in enumerate(zip(x_PH.split(list(heights)), results_PO.split(list(heights)), strict=True)):
        if x_GH.size(0):
            torch.mm((x_GH @ a_SHR[place]).to(b_SRO.dtype), b_SRO[place], out=results_GO)
    return results_PO


class DensePunica(PunicaWrapperCPU):
    """``PunicaWrapperCPU`` whose linear layers go through ``add_dense``; what it does not know falls to vLLM's own operators."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rows = StepRows(count=0)
        self._ids: tuple[int | None, ...] = ()
        self._stacks: dict[int, Stacks] = {}

    def update_metadata(self, mapping: Any, lora_index_to_id: list[int | None], max_loras: int, vocab_size: int, **kwargs: Any) -> None:
        super().update_metadata(mapping, lora_index_to_id, max_loras, vocab_size, **kwargs)
        self._rows = step_rows(self.token_lora_indices, self._rows.slots)
        self._ids = tuple(lora_index_to_id)

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
        stacks.refresh(lora_a_stacked, lora_b_stacked, self._rows.slots, self._ids)
        add_dense(y_TO, x_TH, stacks, self._rows, scale=scale)
