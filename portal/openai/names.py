"""What ``model`` means: a base model, or a step of one of the tenant's jobs. A bare name is its latest step, and the answer says which."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import Http404
from rest_framework.exceptions import NotFound

from engine.spec import ModelInfo
from portal import numbers
from portal.errors import Invalid
from portal.jobs import catalog
from portal.jobs.models import Job
from tenants.models import Tenant


class NoModel(NotFound):
    default_code = "model_not_found"


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """``name``: what the answer calls it. ``job`` None: the base model."""

    name: str
    info: ModelInfo
    job: Job | None = None
    version: int | None = None


def resolve(tenant: Tenant, text: Any, now: datetime) -> Served:
    """Raises ``NoModel`` for what is not there (other tenants' jobs are not), ``Invalid`` for a name that several jobs have."""
    if not isinstance(text, str) or not text or len(text) > 300 or "\x00" in text:
        raise Invalid([("model", "name a base model, or a job with its step, as in job_…@12")])
    known = {info.name: info for info in catalog.known_models(now)}
    if text in known:
        return Served(name=text, info=known[text])
    name, at, step = text.rpartition("@")
    if not at:
        name, step = text, "latest"
    job = _job(tenant, name)
    if job is None:
        raise NoModel(f"The model {text!r} does not exist: there is no such base model and you have no such job.")
    version = _version(job, step, text)
    if job.base_model not in known:
        raise NoModel(f"The model {text!r} cannot be served: the engine does not offer {job.base_model} now.")
    return Served(name=f"{name}@{version}", info=known[job.base_model], job=job, version=version)


def tuned(job: Job, version: int) -> str:
    return f"{job.public_id}@{version}"


def owned_job(tenant: Tenant, public_id: str) -> Job:
    job = tenant.jobs.select_related("dataset", "reward").filter(public_id=public_id).first()
    if job is None:
        raise Http404
    return job


def _job(tenant: Tenant, name: str) -> Job | None:
    if found := tenant.jobs.filter(public_id=name[:40]).first():
        return found
    named = list(tenant.jobs.filter(name=name[:100])[:2])
    if len(named) > 1:
        raise Invalid([("model", f"several of your jobs are called {name!r}; use the id of the one you mean")])
    return named[0] if named else None


def _version(job: Job, step: str, text: str) -> int:
    if step == "latest":
        return job.version
    version = numbers.whole(step, most=job.version)
    if version is None:
        raise NoModel(f"The model {text!r} does not exist: the last step of {job.public_id} is {job.version}.")
    return version
