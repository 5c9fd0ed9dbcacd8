"""One rank of the trainer. All ranks are given the same calls in the same order; rank 0's answers count.

load_base → shard over the ranks        once
fresh(job, spec)   → version 0          per job
step(request)      → version + 1        per step, any job at any time
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from engine import device as devices
from engine.ports import Snapshot, TrainRequest, TrainResult
from engine.spec import JobSpec
from engine.train.base import activation_bytes_per_token, load_base, shard
from engine.train.lora import Adapters, initial_values
from engine.train.passes import RankModel
from engine.train.snapshot import encode_snapshot, fresh_state
from engine.train.step import take_step

if TYPE_CHECKING:
    from engine.settings import EngineSettings

log = logging.getLogger(__name__)


class TrainWorker:
    """Needs the default process group (see ``join_ranks``). A call that raises leaves the worker as usable as before,
    unless it died between two ranks' collectives: then the group times out and must be formed anew.
    """

    def __init__(
        self,
        base: Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        activation_gib: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        """``base``: a local model directory. ``activation_gib``: memory for what one micro-batch keeps for its backward pass."""
        scorer = load_base(base, device=device, dtype=dtype)
        shard(scorer, device=device, world_size=dist.get_world_size())
        self._clock = clock
        self.model = RankModel(
            scorer=scorer,
            adapters=Adapters(scorer.model, device=device),
            device=device,
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
            max_tokens=int(activation_gib * 2**30 / activation_bytes_per_token(scorer.model)),
        )

    @classmethod
    def start(cls, settings: EngineSettings, *, rank: int, world_size: int, init_method: str) -> TrainWorker:
        """Join the ranks at ``init_method`` and load the engine's base model."""
        from engine.models.registry import resolve

        device = settings.device_profile()
        devices.load_plugins(device.kind)
        join_ranks(
            backend=device.collectives,
            init_method=init_method,
            rank=rank,
            world_size=world_size,
            timeout_seconds=settings.call_deadline_seconds,
        )
        files = resolve(settings.model, settings.models_dir)
        return cls(files.path, device=device.torch_device, dtype=device.dtype, activation_gib=settings.train_activation_gib)

    def fresh(self, job: str, spec: JobSpec) -> Snapshot:
        """Version 0 of ``job``: B = 0, A and everything random from ``spec.seed`` alone."""
        shape = self.model.adapters.activate(spec.lora)
        return encode_snapshot(fresh_state(initial_values(shape.slots, spec.seed), spec.seed), shape.slots, spec)

    def step(self, request: TrainRequest) -> TrainResult:
        """See ``take_step``. Ranks other than 0 return an empty snapshot."""
        started = self._clock()
        outcome = take_step(self.model, request)
        snapshot = encode_snapshot(outcome.state, outcome.shape.slots, request.spec) if self.model.rank == 0 else {}
        token_mismatch = outcome.token_mismatch if self.model.rank == 0 else b""
        return TrainResult(snapshot=snapshot, metrics=outcome.metrics, seconds=self._clock() - started, token_mismatch=token_mismatch)


def join_ranks(*, backend: str, init_method: str, rank: int, world_size: int, timeout_seconds: float) -> None:
    """Form the default process group. A collective that waits longer than ``timeout_seconds`` for another rank raises."""
    # The same request must give the same bytes on an accelerator too, where some kernels add in any order unless told otherwise.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout_seconds))
