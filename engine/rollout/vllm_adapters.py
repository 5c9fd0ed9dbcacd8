"""What can be known about an adapter from its files: whether its names fit the model, whether it does anything, and a louder copy of it.

Files are PEFT's: ``adapter_config.json`` and ``adapter_model.safetensors``.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass

import safetensors.torch
import torch

from engine.ports import ADAPTER_FILES, LoadRefused, Snapshot

WEIGHTS, CONFIG = ADAPTER_FILES
_KEY = re.compile(r"base_model\.model\.model\.layers\.(?P<layer>\d+)\.\w+\.(?P<target>\w+)\.lora_(?P<half>[AB])\.weight")


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterFacts:
    """``names``: what identifies the set of tensors, so that a check of names need not be repeated for the job's next version."""

    rank: int
    names: tuple[str, ...]
    does_nothing: bool


def inspect(files: Snapshot, *, layers: int, max_rank: int) -> AdapterFacts:
    """Facts of an adapter for a model of ``layers`` layers. Raises ``LoadRefused`` for names or shapes that the sampler would misread."""
    names, config = _names(files), json.loads(files[CONFIG])
    found: set[tuple[int, str, str]] = set()
    for name in names:
        match = _KEY.fullmatch(name)
        if match is None:
            raise LoadRefused(f"the adapter holds {name!r}, which is no LoRA weight of a decoder layer")
        found.add((int(match["layer"]), match["target"], match["half"]))
    wanted = {(layer, target, half) for layer in range(layers) for target in config["target_modules"] for half in "AB"}
    if found != wanted:
        layer, target, half = min(found ^ wanted)
        word = "lacks" if (layer, target, half) in wanted else "has unexpected"
        raise LoadRefused(
            f"the adapter {word} lora_{half} of {target} in layer {layer} (target modules: {sorted(config['target_modules'])})"
        )
    if config["r"] > max_rank:
        raise LoadRefused(f"the adapter has rank {config['r']}, the sampler takes at most {max_rank}")
    return AdapterFacts(rank=config["r"], names=tuple(names), does_nothing=_does_nothing(files))


def amplified(files: Snapshot) -> Snapshot:
    """The same adapter with B scaled to a largest entry of 1: its effect cannot hide below rounding."""
    tensors = safetensors.torch.load(files[WEIGHTS])
    largest = max(float(t.abs().max()) for name, t in tensors.items() if ".lora_B." in name)
    louder = {name: t / largest if ".lora_B." in name else t for name, t in tensors.items()}
    return {CONFIG: files[CONFIG], WEIGHTS: safetensors.torch.save(louder)}


def _names(files: Snapshot) -> list[str]:
    missing = [name for name in ADAPTER_FILES if name not in files]
    if missing:
        raise LoadRefused(f"the snapshot lacks {', '.join(missing)}")
    head_bytes = struct.unpack_from("<Q", files[WEIGHTS])[0]
    return sorted(set(json.loads(files[WEIGHTS][8 : 8 + head_bytes])) - {"__metadata__"})


def _does_nothing(files: Snapshot) -> bool:
    tensors = safetensors.torch.load(files[WEIGHTS])
    return not any(bool(torch.any(t)) for name, t in tensors.items() if ".lora_B." in name)
