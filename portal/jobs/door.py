"""The door: what a person or program asks for, made into a ``JobSpec`` or refused with every bad field named."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.db.models import QuerySet

from engine.spec import JobSpec, SpecError, Submission, check_against, parse_job
from portal import gateway
from portal.billing import budgets, quotas
from portal.billing.budgets import Budget
from portal.datasets.models import Dataset
from portal.errors import Conflict, Invalid
from portal.jobs import catalog, corpus, engines, warm_start
from portal.names import clean_name
from portal.rewards import templates
from portal.rewards.models import Reward
from tenants.models import Tenant

log = structlog.get_logger(__name__)

# Stands in for a dataset or reward that was not found, so that the other fields are still checked and all faults are told at once.
_ANY_DATASET = {"version": "none", "train": {"sha256": "0" * 64, "bytes": 0}, "train_rows": 2**31}
_ANY_GRADER = {"type": "string_check"}
_PUBLIC_ID = re.compile(r"[a-z0-9_]{1,40}")
OWN_FIELDS = ("name", "dataset", "reward", "budget")


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A checked request."""

    name: str
    dataset: Dataset
    reward: Reward
    spec: JobSpec
    budget: Budget


def check(tenant: Tenant, raw: Any, now: datetime) -> Order:
    """Raises ``Invalid`` with every problem found. Datasets and rewards of other tenants do not exist here."""
    if not isinstance(raw, dict):
        raise Invalid([("spec", "must be an object with dataset, reward and base_model")])
    problems: list[tuple[str, str]] = []
    dataset = _owned(tenant.datasets, raw, "dataset", problems)
    reward = _owned(tenant.rewards, raw, "reward", problems)
    name, faults = clean_name(raw.get("name"), default=f"{reward} on {dataset}"[:100])
    problems += faults
    asked = warm_start.resolved(tenant, corpus.with_blob(tenant, raw, problems), problems)
    spec = _spec(asked, dataset, reward, problems, now)
    if spec is not None:
        problems += warm_start.problems_of(tenant, spec)
        problems += quotas.spec_problems(quotas.limits(tenant), spec)
    budget = budgets.parse(raw.get("budget"), problems)
    if dataset and reward:
        problems += templates.problems(reward.grader, dataset.columns)
    if problems:
        raise Invalid(problems)
    return Order(name=name, dataset=dataset, reward=reward, spec=spec, budget=budget)


def ask_engine(spec: JobSpec) -> None:
    """Raise ``Invalid`` for what only the engine can tell, such as prompts that are too long for the job.

    An engine that does not answer now is no reason to refuse: it looks again when the job reaches it.
    """
    try:
        problems = engines.serving(spec.base_model).estimate(spec.model_dump(mode="json")).get("problems", [])
    except gateway.EngineDown as error:
        log.info("door_without_engine", reason=str(error))
        return
    except gateway.EngineRefused as error:
        raise Invalid(error.problems or [("spec", str(error))]) from error
    if problems:
        raise Invalid([(str(problem["field"]), str(problem["message"])) for problem in problems])


def submission(tenant: Tenant, spec: JobSpec, now: datetime) -> Submission:
    cap = quotas.limits(tenant)["running_jobs"]
    return Submission(tenant=tenant.public_id, submitted_at=now, weight=tenant.weight, running_cap=cap, spec=spec)


def request_sha256(raw: Any) -> str:
    """A digest of what was asked, blind to the order of keys."""
    return hashlib.sha256(json.dumps(raw, sort_keys=True, default=str).encode()).hexdigest()


def replayed(records: QuerySet, key: str, digest: str) -> Any:
    """The one of a tenant's ``records`` that was made under this Idempotency-Key, or None. Raises ``Invalid``, ``Conflict``."""
    if len(key) > 200:
        raise Invalid([("Idempotency-Key", "at most 200 characters")])
    found = records.filter(idempotency_key=key).first()
    if found and found.request_sha256 != digest:
        raise Conflict([("Idempotency-Key", "this key was used with another body; use a new key")])
    return found


def _owned(relation: Any, raw: dict[str, Any], noun: str, problems: list[tuple[str, str]]) -> Any:
    wanted = raw.get(noun)
    if not isinstance(wanted, str) or not wanted:
        problems.append((noun, f"choose a {noun} by its id"))
        return None
    found = relation.filter(public_id=wanted).first() if _PUBLIC_ID.fullmatch(wanted) else None
    if found is None:
        problems.append((noun, f"there is no {noun} {wanted[:40]!a}"))
    return found


def _spec(raw: dict[str, Any], dataset: Dataset | None, reward: Reward | None, problems: list[tuple[str, str]], now: datetime) -> Any:
    """The ``JobSpec``, or None with the reasons added to ``problems``."""
    if "grader" in raw:
        problems.append(("grader", "is taken from the reward; remove it"))
    body = {key: value for key, value in raw.items() if key not in (*OWN_FIELDS, "grader")}
    body["dataset"] = dataset.ref().model_dump(exclude_none=True) if dataset else _ANY_DATASET
    body["grader"] = reward.grader if reward else _ANY_GRADER
    try:
        spec = parse_job(body)
        _check_model(spec, now)
    except SpecError as error:
        problems += error.problems
        return None
    return spec


def _check_model(spec: JobSpec, now: datetime) -> None:
    models = {info.name: info for info in catalog.known_models(now)}
    if not models:
        raise SpecError([("base_model", "the engine has not answered yet, so no model is known; try again when it is up")])
    if spec.base_model not in models:
        raise SpecError([("base_model", f"unknown model {spec.base_model}; choose among {', '.join(models)}")])
    check_against(spec, models[spec.base_model])
