"""Beginning where another job of the same tenant has come to: its adapter becomes version 0, with a fresh optimizer and fresh counters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from engine.errors import Problems
from engine.history import JobHistory
from engine.ports import ADAPTER_FILES, PortError, Snapshot
from engine.spec import JobSpec, Submission, WarmStart
from engine.store import Store, UnknownVersion

WEIGHTS = ADAPTER_FILES[0]


def problems(submission: Submission, jobs: Mapping[str, JobHistory], store: Store, *, weights_sha256: str) -> Problems:
    """What stands against it. Jobs of other tenants do not exist here."""
    spec, wanted = submission.spec, submission.spec.warm_start
    if wanted is None:
        return []
    source = jobs.get(wanted.job)
    if source is None or source.deleted or source.tenant != submission.tenant:
        return [("warm_start.job", f"there is no job {wanted.job}")]
    found = _other_adapter(spec, source.spec, wanted.job)
    if source.weights_sha256 and weights_sha256 and source.weights_sha256 != weights_sha256:
        found.append(("warm_start.job", f"{wanted.job} was trained on other weights of {spec.base_model}"))
    if wanted.version not in (versions := store.versions(wanted.job)):
        latest = f"; its latest is {versions[-1]}" if versions else ""
        found.append(("warm_start.version", f"{wanted.job} has no version {wanted.version}{latest}"))
    return found


def _other_adapter(spec: JobSpec, source: JobSpec, job: str) -> Problems:
    """The same numbers mean the same adapter only under the same base, rank, scale and layers."""
    pairs = [
        ("base_model", spec.base_model, source.base_model),
        ("lora.rank", spec.lora.rank, source.lora.rank),
        ("lora.alpha", spec.lora.alpha, source.lora.alpha),
        ("lora.target_modules", ", ".join(spec.lora.target_modules), ", ".join(source.lora.target_modules)),
    ]
    return [
        (field, f"must be {theirs}, as in {job}, whose adapter this job begins with") for field, ours, theirs in pairs if ours != theirs
    ]


def lineage(store: Store, wanted: WarmStart) -> dict[str, Any]:
    """Where version 0 comes from, for the record. Raises ``UnknownVersion``."""
    weights = store.snapshot(wanted.job, wanted.version, (WEIGHTS,))[WEIGHTS]
    return {**wanted.model_dump(), "adapter_sha256": hashlib.sha256(weights).hexdigest()}


def begun_with(store: Store, wanted: WarmStart, fresh: Snapshot) -> Snapshot:
    """Version 0: everything of ``fresh``, with the other job's weights. Raises ``PortError`` when they are gone."""
    try:
        return {**fresh, **store.snapshot(wanted.job, wanted.version, (WEIGHTS,))}
    except UnknownVersion as error:
        raise PortError(f"the version to begin with is gone: {error}", attribution="user") from error
