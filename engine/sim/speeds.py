"""What the simulator asks of a machine. ``roofline`` answers from datasheets, ``measured`` from a machine's profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Overheads:
    """Seconds beside tokens; each is explained in ``profile``, whose fields these are."""

    seconds_per_request: float = 0.0
    seconds_per_request_batch: float = 0.0
    adapter_load_seconds: float = 0.0
    grade_seconds: float = 0.0
    batch_ready_seconds: float = 0.0
    train_start_seconds: float = 0.0
    commit_seconds: float = 0.0
    rollout_start_seconds: float = 0.0
    job_start_seconds: float = 0.0
    job_end_seconds: float = 0.0
    sampling_slowdown: float = 1.0
    training_slowdown: float = 1.0


class Speeds(Protocol):
    """``max_sequences`` and ``kv_capacity_tokens`` (None: no bound) are what the sampler runs at once; the rest waits inside it."""

    @property
    def max_sequences(self) -> float: ...

    @property
    def kv_capacity_tokens(self) -> float | None: ...

    @property
    def overheads(self) -> Overheads: ...

    def iteration_seconds(self, sequences: float, adapters: int, context_tokens: float) -> float:
        """One token for each of ``sequences``, which belong to ``adapters`` jobs and hold ``context_tokens`` together."""
        ...

    def prefill_seconds(self, tokens: float) -> float: ...

    def train_seconds(self, tokens: float) -> float:
        """One step on one training slot, without start and commit."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantSpeeds:
    """For cases worked by hand: an iteration takes ``seconds_per_iteration`` plus ``seconds_per_sequence`` for each sequence in it."""

    seconds_per_iteration: float = 1.0
    seconds_per_sequence: float = 0.0
    seconds_per_prefill_token: float = 0.0
    seconds_per_trained_token: float = 0.0
    fixed_train_seconds: float = 0.0
    max_sequences: float = float("inf")
    kv_capacity_tokens: float | None = None
    overheads: Overheads = Overheads()

    def iteration_seconds(self, sequences: float, adapters: int, context_tokens: float) -> float:
        return self.seconds_per_iteration + self.seconds_per_sequence * sequences

    def prefill_seconds(self, tokens: float) -> float:
        return self.seconds_per_prefill_token * tokens

    def train_seconds(self, tokens: float) -> float:
        return self.fixed_train_seconds + self.seconds_per_trained_token * tokens
