"""What the manager asks of the world. Real implementations live in ``runtime``; the fakes of unit tests in ``sim.fakes``.

Every method may raise ``PortError``; its ``attribution`` says who pays. Any other exception counts as the platform's fault.
All payloads are bytes or frozen structs, so a port can stand in another process or on another node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.grader_spec import SamplingParams
from engine.spec import JobSpec

# File name → content. `adapter_model.safetensors` and `adapter_config.json` are PEFT's; `optimizer.safetensors` and
# `trainer.json` (RNG, optimizer step, counters) are ours.
Snapshot = dict[str, bytes]
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json")


class PortError(Exception):
    def __init__(self, reason: str, *, attribution: str = "platform"):
        super().__init__(reason)
        self.reason = reason
        self.attribution = attribution


class LoadRefused(PortError):
    """The sampler would not load an adapter, or loaded it without effect. It was never served."""


class TooMany(PortError):
    """The caller has too much under way already."""

    def __init__(self, reason: str, *, attribution: str = "user"):
        super().__init__(reason, attribution=attribution)


class SamplerDied(PortError):
    """The sampler's engine is gone or stuck; its process should end and be started anew."""


class Aborted(PortError):
    """The work was cancelled by ``RolloutPort.abort``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One dataset row as the sampler needs it. ``messages``: chat turns; ``item``: every column, for the grader."""

    row: int
    messages: list[dict[str, str]]
    item: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterRef:
    """Names one committed snapshot on the sampler. ``load_id`` is fresh per load and never reused within one sampler's life.

    ``base``: the frozen base model itself, for whom ``tenant`` and ``job`` say; there is nothing to load.
    """

    tenant: str
    job: str
    version: int
    load_id: int
    base: bool = False

    @property
    def name(self) -> str:
        return f"{self.job}@{self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutRequest:
    adapter: AdapterRef
    attempt: int
    spec: JobSpec
    rows: list[Row]
    seed: int  # completion k of row r samples with a seed derived from (seed, version, r, k)
    adapter_files: Snapshot = field(repr=False)
    deadline_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutResult:
    batch: bytes = field(repr=False)  # an encoded RolloutBatch
    summary: dict[str, Any]  # RolloutSummary as a dict


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalRequest:
    adapter: AdapterRef
    spec: JobSpec
    rows: list[Row]
    adapter_files: Snapshot = field(repr=False)
    deadline_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalResult:
    """``rows``: an encoded ``evaluation.Evaluation``. ``data``: ``EvalData`` as a dict, without what compares it with other versions."""

    rows: bytes = field(repr=False)
    data: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeQuestion:
    """What the base model is asked to judge; ``schema``: the shape of its answer; ``owner``: whose cache it may use."""

    owner: str
    messages: list[dict[str, str]]
    schema: dict[str, Any]
    params: SamplingParams


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeAnswer:
    """``tokens``: read and written together."""

    text: str
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainRequest:
    job: str
    version: int
    attempt: int
    spec: JobSpec
    snapshot: Snapshot = field(repr=False)
    batch: bytes = field(repr=False)
    deadline_seconds: float

    @property
    def key(self) -> tuple[str, int, int]:
        return self.job, self.version, self.attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainResult:
    """``snapshot`` is version + 1 in full. ``metrics``: the trainer's part of ``StepData``. ``token_mismatch``: of ``engine.mismatch``,
    empty where the trainer says nothing of single tokens.
    """

    snapshot: Snapshot = field(repr=False)
    metrics: dict[str, Any]
    seconds: float
    token_mismatch: bytes = field(default=b"", repr=False)


class RolloutPort(Protocol):
    async def rollout(self, request: RolloutRequest) -> RolloutResult:
        """Load the adapter if it is not there, verify it, sample and grade every completion, return the whole batch.

        Of the base model (``request.adapter.base``), a probe: behind everything else, and any number at once under one name.
        """
        ...

    async def evaluate(self, request: EvalRequest) -> EvalResult:
        """Sample and grade every row once, without training on anything. Runs at lower priority than rollouts."""
        ...

    async def judge(self, question: JudgeQuestion) -> JudgeAnswer:
        """One verdict of the base model, for who grades outside of a rollout. Behind everything else, like a probe."""
        ...

    async def prompt_tokens(self, chats: list[list[dict[str, str]]]) -> list[int]:
        """How many tokens each chat has as the prompt of a completion."""
        ...

    async def abort(self, job: str) -> None: ...

    async def unload(self, job: str, *, keep_version: int | None = None) -> None:
        """Drop every adapter of ``job`` but ``keep_version``. Unknown jobs are no error."""
        ...

    async def stats(self) -> dict[str, Any]:
        """The sampler's counters: decode_steps, decode_steps_with_2_adapters, kv_used, waiting, preempted, tokens …

        ``kv_tokens``, where it is known: tenant → tokens that lie in the cache for it ("": the base model's).
        """
        ...

    def workers(self) -> list[dict[str, Any]]:
        """Each process behind the port as it is known here: name, kind, alive, busy (calls), heard_seconds (since its last answer)."""
        ...


class TrainPort(Protocol):
    async def prepare(self, request: TrainRequest) -> None:
        """Have ``request`` at the trainer before its turn, while another ``step`` may be under way. A hint: the last one counts."""
        ...

    async def fresh(self, job: str, spec: JobSpec) -> Snapshot:
        """Version 0: a new adapter (B = 0), an empty optimizer, the RNG seeded from ``spec.seed``."""
        ...

    async def step(self, request: TrainRequest) -> TrainResult:
        """A pure function of its request: the same bytes in, the same bytes out, whoever trained before."""
        ...

    def workers(self) -> list[dict[str, Any]]:
        """As ``RolloutPort.workers``."""
        ...
