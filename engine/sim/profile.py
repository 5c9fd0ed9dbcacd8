"""A machine's measured speeds: what ``python -m engine.bench profile`` writes and ``python -m engine.sim predict`` reads.

One JSON file, ``{"schema": 1, …}``, every field with its unit in its name. ``write`` and ``read`` are the only ones who touch the file;
a file of another schema, or with a field missing or misspelt, is refused by name. How each number is to be measured:

``decode``: steady decode speed of ``sequences`` sequences spread evenly over ``adapters`` LoRA adapters, tokens/s of all together. Take
    it as a slope: sample the same requests with few and with many tokens each; tokens gained over seconds gained. Sizes wanted:
    1, 8, 32, 64, 128, 256, 512 … up to all that ten jobs ask at once, each with 1 and with several adapters. Between points the
    simulator interpolates the seconds of an iteration; beyond the last one it goes on in a straight line.
``prefill_tokens_per_second``: prompts of many tokens with one new token each.
``seconds_per_request``: what each request costs the sampler beside its tokens (it is busy): the rest of the same regression.
``seconds_per_request_batch``: delay from handing over a batch of requests to the first of its iterations, plus that from its last token
    to the answer; nobody is busy in it. Paid once per turn of an episode.
``adapter_load_seconds``: loading one committed version into the sampler, which samples for nobody meanwhile.
``train_fixed_seconds``, ``train_seconds_per_token``: one step on one slot, by tokens that go through the model (prompt, sampled and tool
    tokens of all completions).
``grade_seconds``: a completion's last token to its reward; overlaps with sampling.
``batch_ready_seconds``: last reward to ``RolloutDone`` (the batch packed, durable, journaled). ``train_start_seconds``: ``StartTrain`` to
    the trainer's first work (which holds the training slot, and begins before it where another's
    training is waited for), ``commit_seconds``: the trainer's answer to ``TrainDone``.
    ``rollout_start_seconds``: ``StartRollout`` to the adapter's load. ``job_start_seconds``: submission accepted to admission (version 0 is
    written). ``job_end_seconds``: last commit to the job's end.
``…_slowdown``: the two devices of one machine share memory, caches, perhaps a core: ``sampling_slowdown`` is how much longer sampling
    takes while a training runs, ``training_slowdown`` how much longer a training takes while the sampler is busy. 1.0: not at all.
``lengths``: by name of the workload's load, as the base model answers it; loads that are missing sample their limit every time.
``collocated_…_speedup``: how much faster sampling and training are in the collocated regime, where each has the whole machine in turn.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engine.durable import make_directory, replace_file

SCHEMA = 1

Seconds = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class ProfileError(ValueError):
    """A file is no profile that this version reads; the message names the file and the fields."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)


class DecodePoint(_Strict):
    """``tokens_per_second``: of all ``sequences`` together."""

    sequences: Count
    adapters: Count
    tokens_per_second: Positive


class WaitDistribution(_Strict):
    """A wait drawn from a lognormal, cut at ``cap_seconds``."""

    median_seconds: Positive
    sigma: Annotated[float, Field(ge=0)]
    cap_seconds: Positive


class MeasuredLengths(_Strict):
    """Tokens, as means over episodes: of the rendered prompt, of a sampled turn (with its standard deviation), of an observation."""

    prompt_tokens: Positive
    turn_tokens_mean: Positive
    turn_tokens_std: Annotated[float, Field(ge=0)] = 0.0
    observation_tokens: Annotated[float, Field(ge=0)] = 0.0


class MachineProfile(_Strict):
    """See the module. ``tool_wait``: measured latency of the machine's real tool; it replaces the workload's (None: the workload's)."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = SCHEMA
    machine: str
    model: str
    measured_at: str
    decode: Annotated[tuple[DecodePoint, ...], Field(min_length=1)]
    max_sequences: Count
    kv_capacity_tokens: Count | None = None
    prefill_tokens_per_second: Positive
    seconds_per_request: Seconds
    seconds_per_request_batch: Seconds
    adapter_load_seconds: Seconds
    train_fixed_seconds: Seconds
    train_seconds_per_token: Seconds
    grade_seconds: Seconds = 0.0
    batch_ready_seconds: Seconds = 0.0
    train_start_seconds: Seconds = 0.0
    commit_seconds: Seconds
    rollout_start_seconds: Seconds = 0.0
    job_start_seconds: Seconds = 0.0
    job_end_seconds: Seconds = 0.0
    sampling_slowdown: Annotated[float, Field(ge=1)] = 1.0
    training_slowdown: Annotated[float, Field(ge=1)] = 1.0
    collocated_sampling_speedup: Positive = 1.0
    collocated_training_speedup: Positive = 1.0
    tool_wait: WaitDistribution | None = None
    lengths: dict[str, MeasuredLengths] = {}
    notes: str = ""

    @model_validator(mode="after")
    def _no_point_twice(self) -> MachineProfile:
        sizes = [(point.sequences, point.adapters) for point in self.decode]
        if twice := {size for size in sizes if sizes.count(size) > 1}:
            raise ValueError(f"decode: (sequences, adapters) {sorted(twice)} measured twice; give their median")
        return self


def read(path: Path) -> MachineProfile:
    """Raises ``ProfileError`` for what is no profile, ``OSError`` for what cannot be read."""
    try:
        return MachineProfile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors())
        raise ProfileError(f"{path} is no machine profile of schema {SCHEMA}: {problems}") from error


def write(path: Path, profile: MachineProfile) -> None:
    """Put the whole file in place at once."""
    make_directory(path.parent)
    replace_file(path, (json.dumps(as_json(profile), indent=2) + "\n").encode())


def as_json(profile: MachineProfile) -> dict[str, Any]:
    return profile.model_dump(mode="json", by_alias=True)
