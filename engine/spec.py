"""JobSpec: the one schema of a job. The portal's form, its REST serializer and the engine all read this.

Needs pydantic only: the portal imports it without torch, vllm or ray. ``parse_job`` turns bad input into ``SpecError``, which names
each field by its path. What depends on the engine (rank, context, known models) is checked by ``check_against`` with a ``ModelInfo``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, Field, ValidationError, field_validator, model_validator

from engine.blob_spec import BlobRef
from engine.doctor.codes import Code
from engine.environment_spec import Environment, SearchEndpoint, SingleTurn, Tools, without_tags
from engine.grader_spec import (  # noqa: F401
    CodeExecGrader,
    Grader,
    JudgeGrader,
    MathGrader,
    NumericGrader,
    PythonGrader,
    StringCheckGrader,
    field_problem,
    parts_of,
)
from engine.older_specs import as_said_now
from engine.strict import SpecError, dotted
from engine.strict import Strict as _Strict
from engine.train_spec import TrainSpec

LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class DatasetRef(_Strict):
    """One immutable dataset version as canonical JSONL (see ``engine.data``)."""

    version: Annotated[str, Field(min_length=1, max_length=64)]
    train: BlobRef
    train_rows: Annotated[int, Field(ge=1)]
    eval: BlobRef | None = None
    eval_rows: Annotated[int, Field(ge=0)] = 0


class RolloutSpec(_Strict):
    prompts_per_step: Annotated[int, Field(ge=1, le=4096, description="Different prompts in each training step (the batch).")] = 16
    group_size: Annotated[int, Field(ge=2, le=256, description="Completions sampled per prompt; a group is compared with itself.")] = 8
    max_prompt_tokens: Annotated[int, Field(ge=1, le=1_000_000, description="Longer prompts are refused before the job starts.")] = 64
    max_new_tokens: Annotated[
        int, Field(ge=1, le=1_000_000, description="A completion (each turn) is cut here and counted as truncated.")
    ] = 32
    temperature: Annotated[float, Field(gt=0, le=2, description="Sampling temperature; 1 is the model's own distribution.")] = 1.0
    ignore_eos: Annotated[bool, Field(description="Sample max_new_tokens always: the end token ends nothing. For benchmarks.")] = False
    max_resamples: Annotated[
        int,
        Field(
            ge=0,
            le=10,
            description="Rounds in which groups whose completions all scored alike give way to the next prompts; 0: they stay.",
        ),
    ] = 0
    max_silent_steps: Annotated[
        int, Field(ge=0, le=100_000, description="Steps without any signal in a row before the job pauses; 0: it never does.")
    ] = 20

    @property
    def completions_per_step(self) -> int:
        return self.prompts_per_step * self.group_size


class LoraSpec(_Strict):
    rank: Annotated[int, Field(ge=1, le=512, description="Width of the adapter. More learns more and costs more memory.")] = 16
    alpha: Annotated[int, Field(ge=1, le=1024, description="Adapter scale; the update is multiplied by alpha / rank.")] = 32
    target_modules: Annotated[tuple[str, ...], Field(min_length=1, description="Layers that get an adapter.")] = LORA_TARGETS

    @field_validator("target_modules")
    @classmethod
    def _known_targets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(value) - set(LORA_TARGETS))
        if unknown:
            raise ValueError(f"{', '.join(unknown)} cannot carry an adapter; choose among {', '.join(LORA_TARGETS)}")
        if len(set(value)) != len(value):
            raise ValueError("names a layer twice")
        return tuple(name for name in LORA_TARGETS if name in value)


class EvalSpec(_Strict):
    """Held-out evaluation; runs only where the dataset has an eval split."""

    every: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="Evaluate each n-th version; 0: only the first and the last. Under load one in between may be passed over.",
        ),
    ] = 0
    max_rows: Annotated[int, Field(ge=1, le=100_000)] = 256
    temperature: Annotated[float, Field(ge=0, le=2, description="0 is greedy.")] = 0.0


class DoctorSpec(_Strict):
    """What the doctor may do besides telling (``engine.doctor``)."""

    pause_on: Annotated[tuple[Code, ...], Field(description="Findings that pause the job after the step that is running.")] = ()

    @field_validator("pause_on")
    @classmethod
    def _each_once(cls, value: tuple[Code, ...]) -> tuple[Code, ...]:
        return tuple(dict.fromkeys(value))


class WarmStart(_Strict):
    """A committed version of another job of the same tenant, whose adapter becomes version 0 of this one. The optimizer begins afresh."""

    job: Annotated[str, Field(min_length=1, max_length=64, description="A job of yours with the same base model and adapter.")]
    version: Annotated[int, Field(ge=0, le=100_000, description="One of its committed versions.")]


class JobSpec(_Strict):
    """A whole job. Frozen: what was accepted is what runs."""

    base_model: Annotated[str, Field(min_length=1, max_length=200)]
    dataset: DatasetRef
    grader: Grader
    environment: Environment = SingleTurn()
    rollout: RolloutSpec = RolloutSpec()
    lora: LoraSpec = LoraSpec()
    train: TrainSpec = TrainSpec()
    eval: EvalSpec = EvalSpec()
    doctor: DoctorSpec = DoctorSpec()
    warm_start: WarmStart | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @property
    def context_tokens(self) -> int:
        """Of one completion at its longest: the prompt, every turn, and what the environment adds between them."""
        told = self.environment.most_turns * self.rollout.max_new_tokens + self.environment.most_added_tokens
        return self.rollout.max_prompt_tokens + min(told, self.environment.max_tokens or told)

    @model_validator(mode="before")
    @classmethod
    def _said_now(cls, raw: Any) -> Any:
        return as_said_now(raw)

    @model_validator(mode="after")
    def _enough_rows(self) -> JobSpec:
        if self.dataset.train_rows < self.rollout.prompts_per_step:
            raise ValueError(
                f"rollout.prompts_per_step is {self.rollout.prompts_per_step}, but the dataset has only "
                f"{self.dataset.train_rows} training rows; lower it or add rows"
            )
        return self

    @model_validator(mode="after")
    def _training_fits_the_rollout(self) -> JobSpec:
        if self.train.minibatches > self.rollout.prompts_per_step:
            raise ValueError(
                f"train.minibatches is {self.train.minibatches}, but a step has only {self.rollout.prompts_per_step} prompts "
                "(rollout.prompts_per_step), and the completions of one prompt stay together; lower it"
            )
        if self.train.overlong_buffer_tokens > self.rollout.max_new_tokens:
            raise ValueError(
                f"train.overlong_buffer_tokens is {self.train.overlong_buffer_tokens}, but the longest completion has "
                f"{self.rollout.max_new_tokens} tokens (rollout.max_new_tokens); lower it"
            )
        return self


class Submission(_Strict):
    """What the portal sends with ``PUT /jobs/{id}``. ``tenant`` is opaque to the engine."""

    tenant: Annotated[str, Field(min_length=1, max_length=64)]
    submitted_at: AwareDatetime
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    running_cap: Annotated[int | None, Field(ge=1)] = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    spec: JobSpec


class ModelInfo(_Strict):
    """What an engine can do for one base model; the answer of ``GET /models``. Sizes in bytes and tokens."""

    name: str
    max_context_tokens: int
    max_rank: int
    target_modules: tuple[str, ...]
    kv_bytes_per_token: int
    kv_budget_bytes: int
    job_slots: int
    weights_sha256: str = ""
    description: str = ""
    search_endpoints: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    reward_sandbox: Literal["", "none", "weak", "plain", "bwrap"] = ""  # what holds tenants' code; empty: an engine that does not say


def parse_job(raw: Any) -> JobSpec:
    """``raw`` (JSON-like) as a ``JobSpec``; raises ``SpecError`` naming every bad field."""
    return parse_as(JobSpec, raw)


def parse_submission(raw: Any) -> Submission:
    return parse_as(Submission, raw)


def parse_as(model: type[BaseModel], raw: Any) -> Any:
    """``raw`` as a ``model`` that is, or has under ``spec``, a job; raises ``SpecError`` naming every bad field."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise SpecError([_problem(e) for e in error.errors()]) from None


def _problem(error: Any) -> tuple[str, str]:
    location = without_tags(error["loc"])
    if "grader" not in location[:2] or (error["type"] == "missing" and location[-1] == "grader"):
        return dotted(location), error["msg"].removeprefix("Value error, ")
    before = location[: location.index("grader") + 1]
    field, message = field_problem({**error, "loc": location[len(before) :]})
    return dotted((*before, field)), message


def kv_bytes(spec: JobSpec, kv_bytes_per_token: int) -> int:
    """Estimated KV-cache footprint of one step: every completion of the batch at full context."""
    return kv_bytes_per_token * spec.context_tokens * spec.rollout.completions_per_step


def check_against(spec: JobSpec, model: ModelInfo) -> None:
    """Raise ``SpecError`` when ``model`` cannot run ``spec``: no accepted job may fail later for its configuration."""
    problems: list[tuple[str, str]] = []
    if spec.base_model != model.name:
        problems.append(("base_model", f"this engine serves {model.name}, not {spec.base_model}"))
    if spec.lora.rank > model.max_rank:
        problems.append(("lora.rank", f"at most {model.max_rank} on {model.name}, got {spec.lora.rank}"))
    if extra := sorted(set(spec.lora.target_modules) - set(model.target_modules)):
        problems.append(
            ("lora.target_modules", f"{model.name} has no adapter on {', '.join(extra)}; it offers {', '.join(model.target_modules)}")
        )
    if spec.context_tokens > model.max_context_tokens:
        problems.append(
            (
                "rollout.max_new_tokens",
                f"prompt and completion together may take {model.max_context_tokens} tokens on {model.name}, got {_context_sum(spec)}",
            )
        )
    source = spec.environment.search.source if isinstance(spec.environment, Tools) else None
    if isinstance(source, SearchEndpoint) and source.name not in model.search_endpoints:
        offered = ", ".join(model.search_endpoints) or "none"
        problems.append(("environment.search.source.name", f"this engine has no search endpoint {source.name}; it offers {offered}"))
    for prefix, part in parts_of(spec.grader):
        if isinstance(part, JudgeGrader) and part.model not in model.judges:
            offered = ", ".join(model.judges) or "none"
            problems.append((f"grader.{prefix}model", f"this engine has no judge {part.model}; its operator offers {offered}"))
        if isinstance(part, PythonGrader | CodeExecGrader) and model.reward_sandbox == "none":
            problems.append((f"grader.{prefix}type", f"this engine runs no {part.type} rewards: its machine cannot hold the sandbox"))
    if isinstance(spec.environment, Tools) and "python" in spec.environment.tools and model.reward_sandbox == "none":
        problems.append(("environment.tools", "this engine runs no python tool: its machine cannot hold the sandbox"))
    if problems:
        raise SpecError(problems)


def _context_sum(spec: JobSpec) -> str:
    rollout, turns, added = spec.rollout, spec.environment.most_turns, spec.environment.most_added_tokens
    told = f"{rollout.max_new_tokens}" if turns == 1 else f"{turns} turns of {rollout.max_new_tokens}"
    told += f" + {added} of the environment" if added else ""
    if spec.environment.max_tokens is not None:
        told = f"environment.max_tokens {spec.context_tokens - rollout.max_prompt_tokens}"
    return f"{rollout.max_prompt_tokens} + {told} = {spec.context_tokens}"
