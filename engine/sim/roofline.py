"""``Speeds`` from datasheets: what a model's decode, prefill and training cost on accelerators, by bytes moved and operations done.

Sources of the numbers, here and in ``paper``: [D] datasheet, [C] the model's published config.json, [A] arithmetic from these, [L] the
literature named beside it, [P] the paper's own statement (arXiv 2605.08527), [I] this project's issue, [G] a guess of ours, said to be one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from engine.sim.speeds import Overheads


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerator:
    name: str
    memory_bytes: float
    bytes_per_second: float
    flops: float


# [D] NVIDIA A100 80GB SXM: 80 GB, 2,039 GB/s, 312 TFLOPS dense BF16. The public text of the paper does not name its accelerators; of the
# class that its year and place suggest (Ascend 910B: 64 GB, 280-313 TFLOPS) public sources give bandwidths from 0.4 to 1.6 TB/s.
A100 = Accelerator(name="A100 80GB SXM", memory_bytes=80e9, bytes_per_second=2.039e12, flops=312e12)


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """[C] as in config.json. ``tied``: input and output embedding are one matrix."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    @cached_property
    def parameters(self) -> float:
        """[A] Of all matrices; norms are left out (under 0.01 %)."""
        return self.layers * sum(a * b for a, b in self._projections) + self.vocabulary * self.hidden * (1 if self.tied else 2)

    @cached_property
    def active_parameters(self) -> float:
        """[A] Those that a token is multiplied with: all but the input embedding."""
        return self.layers * sum(a * b for a, b in self._projections) + self.vocabulary * self.hidden

    @property
    def kv_bytes_per_token(self) -> float:
        """[A] 2 · layers · kv_heads · head_dim · 2 bytes (bfloat16), as in DESIGN §6."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2

    def lora_parameters(self, rank: int) -> float:
        """[A] On all seven linear layers."""
        return self.layers * sum(rank * (a + b) for a, b in self._projections)

    @property
    def _projections(self) -> list[tuple[int, int]]:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = [(self.hidden, q), (self.hidden, kv), (self.hidden, kv), (q, self.hidden)]
        return attention + [(self.hidden, self.intermediate)] * 3


# [C] Qwen3 (also Qwen3 Technical Report, arXiv 2505.09388, table 1: layers, heads, tied embeddings).
def _qwen3(name: str, *, layers: int, hidden: int, intermediate: int, heads: int, tied: bool) -> ModelSize:
    return ModelSize(
        name=name,
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        kv_heads=8,
        head_dim=128,
        vocabulary=151_936,
        tied=tied,
    )


QWEN3 = {
    size.name: size
    for size in (
        _qwen3("Qwen3-0.6B", layers=28, hidden=1024, intermediate=3072, heads=16, tied=True),
        _qwen3("Qwen3-14B", layers=40, hidden=5120, intermediate=17_408, heads=40, tied=False),
        _qwen3("Qwen3-32B", layers=64, hidden=5120, intermediate=25_600, heads=64, tied=False),
    )
}

BYTES = 2  # bfloat16 weights and cache
RANK = 16  # [G] the adapters' rank, on all linear layers
MEMORY_UTILISATION = 0.9  # vLLM's default gpu_memory_utilization
BANDWIDTH_REACHED = (
    0.6  # [L] model bandwidth utilisation of a good serving stack, "LLM Inference Performance Engineering" (Databricks, 2023)
)
FLOPS_REACHED = 0.4  # [L] 38-43 % of peak BF16 in training, "The Llama 3 Herd of Models", arXiv 2407.21783, table 4
ITERATION_SECONDS = 0.005  # [G] the host's part of a decode iteration (schedule, launch, detokenise)
MULTI_LORA_SECONDS = 0.002  # [L] added per token by batched LoRA kernels, Punica, arXiv 2310.18547, abstract
MAX_SEQUENCES = 256  # vLLM's default max_num_seqs, per replica
HOST_BYTES_PER_SECOND = 25e9  # [D] PCIe 4.0 x16, 32 GB/s, of which about 25 are reached
DISK_BYTES_PER_SECOND = 1e9  # [G] fsynced writes to one NVMe disk
TRAIN_FIXED_SECONDS = 1.0  # [G] unpacking, optimizer step, snapshot
FORWARD_BACKWARD = (
    6  # [A] FLOPs per parameter and token: forward 2, again for checkpointing 2, gradients of activations 2; the base is frozen
)


@dataclass(frozen=True, kw_only=True)
class RooflineSpeeds:
    """``rollout_devices`` in replicas of ``tensor_parallel``; requests spread evenly over them. Communication is free: optimistic."""

    model: ModelSize
    rollout_devices: int
    train_devices: int
    tensor_parallel: int = 1
    accelerator: Accelerator = A100

    @property
    def replicas(self) -> int:
        return self.rollout_devices // self.tensor_parallel

    @cached_property
    def max_sequences(self) -> float:
        return float(MAX_SEQUENCES * self.replicas)

    @cached_property
    def kv_capacity_tokens(self) -> float:
        free = MEMORY_UTILISATION * self.accelerator.memory_bytes * self.tensor_parallel - self.model.parameters * BYTES
        return self.replicas * free / self.model.kv_bytes_per_token

    @cached_property
    def overheads(self) -> Overheads:
        return Overheads(
            adapter_load_seconds=self._adapter_bytes / HOST_BYTES_PER_SECOND,
            # [A] bfloat16 weights, and AdamW's master weights and two moments in float32: 14 bytes for each 2
            commit_seconds=7 * self._adapter_bytes / DISK_BYTES_PER_SECOND,
        )

    def iteration_seconds(self, sequences: float, adapters: int, context_tokens: float) -> float:
        """Weights are read once or multiplied with every sequence, whichever takes longer; then caches and adapters are read."""
        read, multiply, cache, adapter = self._iteration_parts
        weights = max(read, multiply * sequences)
        return ITERATION_SECONDS + MULTI_LORA_SECONDS + weights + cache * context_tokens + adapter * adapters

    def prefill_seconds(self, tokens: float) -> float:
        return self._prefill_seconds_per_token * tokens

    def train_seconds(self, tokens: float) -> float:
        flops = FORWARD_BACKWARD * self.model.active_parameters * tokens
        return TRAIN_FIXED_SECONDS + flops / (self.accelerator.flops * FLOPS_REACHED * self.train_devices)

    @cached_property
    def _adapter_bytes(self) -> float:
        return self.model.lora_parameters(RANK) * BYTES

    @cached_property
    def _prefill_seconds_per_token(self) -> float:
        return 2 * self.model.active_parameters / (self.accelerator.flops * FLOPS_REACHED * self.rollout_devices)

    @cached_property
    def _iteration_parts(self) -> tuple[float, float, float, float]:
        """Seconds to read the weights, to multiply with them per sequence, to read a token's cache, to read an adapter.

        Sequences and cached tokens are counted over all replicas, each of which has its share of them.
        """
        bandwidth = self.accelerator.bytes_per_second * BANDWIDTH_REACHED * self.tensor_parallel
        compute = self.accelerator.flops * FLOPS_REACHED * self.tensor_parallel
        active = self.model.active_parameters
        return (
            active * BYTES / bandwidth,
            2 * active / compute / self.replicas,
            self.model.kv_bytes_per_token / bandwidth / self.replicas,
            self._adapter_bytes / bandwidth,
        )
