"""A fine-tuning job's request: OpenAI's body into what ``jobs.actions.create_job`` takes, every bad field named by OpenAI's name for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from engine.spec import RolloutSpec, TrainSpec
from portal.datasets.actions import held_out_from
from portal.datasets.models import Dataset
from portal.errors import Invalid
from portal.openai import fields
from portal.rewards.actions import checked_grader
from tenants.models import Tenant, User

MAX_PAIRS, MAX_KEY, MAX_VALUE = 16, 64, 512
Problems = list[tuple[str, str]]

# OpenAI's name, or ours, and where it stands in a job's specification.
_PLACES = {
    "batch_size": ("rollout", "prompts_per_step"),
    "group_size": ("rollout", "group_size"),
    "max_prompt_tokens": ("rollout", "max_prompt_tokens"),
    "max_new_tokens": ("rollout", "max_new_tokens"),
    "temperature": ("rollout", "temperature"),
    "steps": ("train", "steps"),
    "learning_rate": ("train", "learning_rate"),
    "loss": ("train", "loss"),
    "advantage": ("train", "advantage"),
    "kl_coefficient": ("train", "kl_coefficient"),
    "eval_interval": ("eval", "every"),
    "eval_samples": ("eval", "max_rows"),
    "lora_rank": ("lora", "rank"),
    "lora_alpha": ("lora", "alpha"),
}
_RELATIVE = ("n_epochs", "learning_rate_multiplier", "compute_multiplier")
_SAYS_THE_SAME = {"steps": "n_epochs", "learning_rate": "learning_rate_multiplier", "group_size": "compute_multiplier"}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRequest:
    """``raw``: for ``create_job``, without its reward. ``grader``: checked, not stored."""

    raw: dict[str, Any]
    grader: dict[str, Any]
    metadata: dict[str, str]

    @property
    def name(self) -> str | None:
        return self.raw.get("name")


def parse(tenant: Tenant, user: User, body: Any) -> JobRequest:
    """Raises ``Invalid``. A validation file makes a dataset of both, once."""
    problems: Problems = []
    given = fields.taken(body, fields.JOB, problems)
    method = fields.taken(given.get("method", {}), fields.METHOD, problems, "method")
    if method.get("type") != "reinforcement":
        problems.append(("method.type", "must be reinforcement"))
    part = fields.taken(method.get("reinforcement", {}), fields.REINFORCEMENT, problems, "method.reinforcement")
    path = "method.reinforcement.hyperparameters"
    hyper = fields.taken(part.get("hyperparameters", {}), fields.HYPERPARAMETERS, problems, path)
    train, held_out = (_dataset(tenant, given, name, problems) for name in ("training_file", "validation_file"))
    graded: Problems = []
    grader = checked_grader(part.get("grader"), graded)
    problems += [(f"method.reinforcement.{field}", message) for field, message in graded]
    spec = _spec(hyper, train.train_rows if train else 1, problems, path)
    metadata = _metadata(given.get("metadata", {}), problems)
    if problems:
        raise Invalid(problems)
    dataset = held_out_from(tenant, user, train, held_out) if held_out else train
    named = {name: given[key] for name, key in (("name", "suffix"), ("seed", "seed")) if key in given}
    raw = {"base_model": given.get("model"), "dataset": dataset.public_id, **spec, **named}
    return JobRequest(raw=raw, grader=grader, metadata=metadata)


def said_as_openai(problems: Problems) -> Problems:
    """Our names of fields as OpenAI's."""
    ours = {".".join(place): f"method.reinforcement.hyperparameters.{name}" for name, place in _PLACES.items()}
    ours |= {"base_model": "model", "dataset": "training_file", "name": "suffix"}
    return [
        (f"method.reinforcement.{field}" if field.split(".")[0] == "grader" else ours.get(field, field), text) for field, text in problems
    ]


def _dataset(tenant: Tenant, given: dict[str, Any], name: str, problems: Problems) -> Dataset | None:
    file_id = given.get(name)
    if file_id is None and name == "validation_file":
        return None
    found = tenant.datasets.filter(public_id=file_id).first() if isinstance(file_id, str) and len(file_id) < 40 else None
    if found is None:
        problems.append((name, "name a file of yours by its id"))
    return found


def _spec(hyper: dict[str, Any], rows: int, problems: Problems, path: str) -> dict[str, dict[str, Any]]:
    """Sections of a job's specification. ``auto`` is the same as leaving a hyperparameter out."""
    said = {name: value for name, value in hyper.items() if value != "auto"}
    for name in _RELATIVE:
        if name in said and not _above_0(said[name]):
            problems.append((f"{path}.{name}", "must be a number above 0, or auto"))
            del said[name]
    for ours, theirs in _SAYS_THE_SAME.items():
        if ours in said and theirs in said:
            problems.append((f"{path}.{ours}", f"says the same as {theirs}; leave one of them out"))
    spec: dict[str, dict[str, Any]] = {}
    for name, (section, field) in _PLACES.items():
        if name in said:
            spec.setdefault(section, {})[field] = said[name]
    rollout = spec.setdefault("rollout", {})
    batch = rollout.setdefault("prompts_per_step", min(RolloutSpec().prompts_per_step, rows))
    if "n_epochs" in said and isinstance(batch, int) and batch > 0:
        spec.setdefault("train", {})["steps"] = math.ceil(said["n_epochs"] * rows / batch)
    if "learning_rate_multiplier" in said:
        spec.setdefault("train", {})["learning_rate"] = said["learning_rate_multiplier"] * TrainSpec().learning_rate
    if "compute_multiplier" in said:
        rollout["group_size"] = max(2, round(said["compute_multiplier"] * RolloutSpec().group_size))
    return spec


def _above_0(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value < 1e9


def _metadata(raw: Any, problems: Problems) -> dict[str, str]:
    fits = isinstance(raw, dict) and len(raw) <= MAX_PAIRS
    if fits and all(1 <= len(key) <= MAX_KEY and isinstance(value, str) and len(value) <= MAX_VALUE for key, value in raw.items()):
        return raw
    problems.append(
        ("metadata", f"must be at most {MAX_PAIRS} pairs of texts: keys of up to {MAX_KEY}, values of up to {MAX_VALUE} characters")
    )
    return {}
