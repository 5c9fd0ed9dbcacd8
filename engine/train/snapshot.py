"""A policy version as files: PEFT's adapter directory plus the optimizer and the trainer's own record.

    adapter_model.safetensors   PEFT's key names, float32
    adapter_config.json         what ``PeftModel.from_pretrained`` reads
    optimizer.safetensors       AdamW's moments, ``mean.<adapter key>`` and ``square.<adapter key>``
    trainer.json                version, RNG, optimizer updates, counters

The bytes are a pure function of the content: two processes that trained the same thing write the same files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import safetensors.numpy
import torch
from safetensors import SafetensorError
from torch import Tensor

from engine.ports import PortError, Snapshot
from engine.spec import JobSpec, LoraSpec
from engine.train.adamw import AdamWState
from engine.train.lora import Slot, lora_config

ADAPTER, CONFIG = "adapter_model.safetensors", "adapter_config.json"
OPTIMIZER, TRAINER = "optimizer.safetensors", "trainer.json"
METADATA = {"format": "pt"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerRecord:
    """``seed``: every random draw of step n comes from (seed, n), so these two are the RNG's whole state.

    ``updates``: AdamW's step. The rest counts steps that were committed without an update; ``nonfinite_in_row`` is reset by any other step.
    """

    version: int
    seed: int
    updates: int = 0
    no_signal_steps: int = 0
    nonfinite_steps: int = 0
    nonfinite_in_row: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerState:
    """A snapshot in memory: flat CPU vectors in the order of the adapter's slots."""

    values_P: Tensor
    mean_P: Tensor
    square_P: Tensor
    record: TrainerRecord


def fresh_state(values_P: Tensor, seed: int) -> TrainerState:
    return TrainerState(
        values_P=values_P,
        mean_P=torch.zeros_like(values_P),
        square_P=torch.zeros_like(values_P),
        record=TrainerRecord(version=0, seed=seed),
    )


def encode_snapshot(state: TrainerState, slots: tuple[Slot, ...], spec: JobSpec) -> Snapshot:
    moments = {**_named(state.mean_P, slots, "mean."), **_named(state.square_P, slots, "square.")}
    return {
        ADAPTER: safetensors.numpy.save(_named(state.values_P, slots), metadata=METADATA),
        CONFIG: _json(adapter_config(spec.lora, spec.base_model)),
        OPTIMIZER: safetensors.numpy.save(moments),
        TRAINER: _json({name: getattr(state.record, name) for name in TrainerRecord.__dataclass_fields__}),
    }


def decode_snapshot(snapshot: Snapshot, slots: tuple[Slot, ...], *, version: int) -> TrainerState:
    """Raises ``PortError`` when a file is missing or broken, when the tensors are not those of ``slots``, or at another version."""
    try:
        record = TrainerRecord(**json.loads(snapshot[TRAINER]))
        adapter, moments = (safetensors.numpy.load(snapshot[name]) for name in (ADAPTER, OPTIMIZER))
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        raise PortError(f"the snapshot of version {version} cannot be read: {type(error).__name__}: {error}") from error
    if record.version != version:
        raise PortError(f"the snapshot is version {record.version}, the step trains from version {version}")
    return TrainerState(
        values_P=_flat(adapter, slots),
        mean_P=_flat(moments, slots, "mean."),
        square_P=_flat(moments, slots, "square."),
        record=record,
    )


def adamw_state(state: TrainerState, device: str) -> AdamWState:
    """A working copy of the moments on ``device``; ``state`` itself is never changed."""
    mean_P, square_P = (moment_P.to(device, copy=True) for moment_P in (state.mean_P, state.square_P))
    return AdamWState(mean_P=mean_P, square_P=square_P, updates=state.record.updates)


def adapter_config(spec: LoraSpec, base_model: str) -> dict[str, Any]:
    """PEFT's own description of the adapter, for inference, without anything that differs from process to process."""
    settings = lora_config(spec).to_dict()
    settings |= {"task_type": "CAUSAL_LM", "inference_mode": True, "base_model_name_or_path": base_model}
    return {name: sorted(value) if isinstance(value, set) else value for name, value in settings.items()}


def _named(flat_P: Tensor, slots: tuple[Slot, ...], prefix: str = "") -> dict[str, Any]:
    return {prefix + slot.key: slot.view(flat_P).numpy() for slot in slots}


def _flat(tensors: dict[str, Any], slots: tuple[Slot, ...], prefix: str = "") -> Tensor:
    wanted = {prefix + slot.key: slot.shape for slot in slots}
    found = {key: value.shape for key, value in tensors.items() if key.startswith(prefix)}
    if wrong := sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)):
        raise PortError(f"the snapshot does not fit the adapter: {wrong[0]} is {found.get(wrong[0])}, wanted {wanted.get(wrong[0])}")
    return torch.cat([torch.from_numpy(tensors[key]).reshape(-1) for key in wanted])


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode()
