"""LoRA adapters in the base: one flat vector per job shape, viewed by PEFT's own layers.

A *shape* is (rank, target modules). PEFT layers are created once per shape and kept; a job's weights are copied in before its step, so
nothing of one job is left for the next. All parameters of a shape are views of one vector, and so are their gradients: reducing,
clipping and updating an adapter are single operations. Alpha is set per job.
"""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from engine.train.fused import FusedLoraLinear

if TYPE_CHECKING:
    from engine.spec import LoraSpec

PEFT_PREFIX = "base_model.model."
SHAPES_KEPT = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """Where one LoRA matrix lies in the flat vector. ``key``: its name in PEFT's adapter file."""

    key: str
    start: int
    shape: tuple[int, int]

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def view(self, flat_P: Tensor) -> Tensor:
        return flat_P[self.start : self.start + self.size].view(self.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterShape:
    """The live parameters of one (rank, targets): ``values_P`` and ``gradient_P``, and the slots that cut them into matrices."""

    name: str
    slots: tuple[Slot, ...]
    values_P: Tensor
    gradient_P: Tensor


class Adapters:
    """All adapter shapes of one base model. Exactly one is active at a time."""

    def __init__(self, model: nn.Module, *, device: str):
        self._model = model
        self._device = device
        self._shapes: OrderedDict[tuple[int, tuple[str, ...]], AdapterShape] = OrderedDict()
        self._numbers = count()
        self._active: str | None = None
        self._layers: list[LoraLayer] = []

    def activate(self, spec: LoraSpec) -> AdapterShape:
        """The parameters of ``spec``'s shape, active in the model with ``spec``'s alpha. They hold whatever the last job left in them."""
        shape = self._shape(spec)
        for layer in self._layers:
            if shape.name != self._active:
                layer.set_adapter(shape.name)
            if shape.name in layer.scaling:
                layer.scaling[shape.name] = spec.alpha / spec.rank
        self._active = shape.name
        return shape

    @contextmanager
    def off(self) -> Iterator[None]:
        """The base model alone, for what is computed inside without gradient."""
        for layer in self._layers:
            layer.enable_adapters(False)
        try:
            yield
        finally:
            for layer in self._layers:
                layer.enable_adapters(True)

    def _shape(self, spec: LoraSpec) -> AdapterShape:
        key = (spec.rank, spec.target_modules)
        if key in self._shapes:
            self._shapes.move_to_end(key)
            return self._shapes[key]
        if len(self._shapes) >= SHAPES_KEPT:
            self._forget(self._shapes.popitem(last=False)[1])
        self._shapes[key] = shape = self._create(spec)
        return shape

    def _create(self, spec: LoraSpec) -> AdapterShape:
        name = f"shape{next(self._numbers)}"
        # PEFT draws its initial values from the global generator; they are overwritten, and the draws must not show. It also warns of
        # several adapters in one model, which is the point here.
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Already found a `peft_config`")
            config = lora_config(spec)
            config._register_custom_module({nn.Linear: FusedLoraLinear})
            inject_adapter_in_model(config, self._model, adapter_name=name)
        self._active = None
        self._layers = [module for module in self._model.modules() if isinstance(module, LoraLayer)]
        parameters = {_peft_key(key, name): p for key, p in self._model.named_parameters() if f".{name}." in key}
        slots = _lay_out({key: tuple(p.shape) for key, p in parameters.items()})
        size = slots[-1].start + slots[-1].size
        values_P, gradient_P = (torch.zeros(size, dtype=torch.float32, device=self._device) for _ in range(2))
        for slot in slots:
            parameter = parameters[slot.key]
            parameter.data = slot.view(values_P)
            parameter.grad = slot.view(gradient_P)
        return AdapterShape(name=name, slots=slots, values_P=values_P, gradient_P=gradient_P)

    def _forget(self, shape: AdapterShape) -> None:
        for layer in self._layers:
            if shape.name in layer.scaling:
                layer.delete_adapter(shape.name)


def lora_config(spec: LoraSpec) -> LoraConfig:
    return LoraConfig(r=spec.rank, lora_alpha=spec.alpha, target_modules=list(spec.target_modules), lora_dropout=0.0, bias="none")


def initial_values(slots: tuple[Slot, ...], seed: int) -> Tensor:
    """A fresh adapter as a flat CPU vector: B = 0, A uniform in ±1/√in as PEFT has it, drawn from ``seed`` alone."""
    generator = torch.Generator().manual_seed(seed)
    values_P = torch.zeros(slots[-1].start + slots[-1].size)
    for slot in slots:
        if slot.key.endswith("lora_A.weight"):
            bound = 1.0 / math.sqrt(slot.shape[1])
            slot.view(values_P).uniform_(-bound, bound, generator=generator)
    return values_P


def _lay_out(shapes: dict[str, tuple[int, ...]]) -> tuple[Slot, ...]:
    """Slots in the order of their names, which is the same on every rank and in every process."""
    slots: list[Slot] = []
    start = 0
    for key in sorted(shapes):
        slots.append(Slot(key=key, start=start, shape=(shapes[key][0], shapes[key][1])))
        start += slots[-1].size
    return tuple(slots)


def _peft_key(parameter_name: str, adapter_name: str) -> str:
    """``model.layers.0.mlp.up_proj.lora_A.shape3.weight`` → ``base_model.model.model.layers.0.mlp.up_proj.lora_A.weight``."""
    return PEFT_PREFIX + parameter_name.replace(f".{adapter_name}.", ".")
