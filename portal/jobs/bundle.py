"""Everything that says how a version came to be: hashes of data, reward and configuration, seeds, software, weights and lineage."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from engine.grader_spec import shown
from portal.jobs import warm_start
from portal.jobs.models import Job

SCHEMA = "marlaas.reproducibility/1"
MOST_ANCESTORS = 50


def of(job: Job, version: int) -> dict[str, Any]:
    """The bundle of a committed version; what the engine did not tell is None. The same version gives the same bundle."""
    accepted = _data(job, kind="accepted")
    steps = list(job.events.filter(kind="step", data__version__lte=version).order_by("seq").values_list("data", flat=True))
    grader = shown(job.spec["grader"])
    configuration = {**{key: value for key, value in job.spec.items() if key not in ("dataset", "grader")}}
    return {
        "schema": SCHEMA,
        "job": job.public_id,
        "name": job.name,
        "version": version,
        "submitted_at": job.submitted_at.isoformat(),
        "base_model": {"name": job.base_model, "weights_sha256": (accepted or {}).get("weights_sha256")},
        "dataset": {"id": job.dataset.public_id, **job.spec["dataset"]},
        "reward": {"id": job.reward.public_id, "sha256": sha256(grader), "grader": grader},
        "configuration": {"sha256": sha256(configuration), "values": configuration},
        "seed": job.spec["seed"],
        "software": (accepted or {}).get("software"),
        "adapter": {"version": version, "sha256": steps[-1]["adapter_sha256"] if steps else None},
        "steps": [_step(step) for step in steps],
        "lineage": lineage(job),
    }


def lineage(job: Job) -> list[dict[str, Any]]:
    """What version 0 began with, and what that had begun with, the nearest first; ``known``: whether that job is still there."""
    found: list[dict[str, Any]] = []
    current: Job | None = job
    while current is not None and (wanted := current.spec.get(warm_start.SECTION)) and len(found) < MOST_ANCESTORS:
        told = (_data(current, kind="accepted") or {}).get("warm_start") or {}
        current = warm_start.find(job.tenant, wanted["job"])
        found.append({**wanted, "adapter_sha256": told.get("adapter_sha256"), "name": current.name if current else None})
    return found


def sha256(value: Any) -> str:
    """Of its JSON with sorted keys and no blanks."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def _step(step: dict[str, Any]) -> dict[str, Any]:
    certificate = step.get("certificate") or {}
    kept = {"version": step["version"], "attempt": step.get("attempt"), "adapter_sha256": step.get("adapter_sha256")}
    return {**kept, "on_policy": certificate.get("on_policy"), "completions": certificate.get("completions")}


def _data(job: Job, **where: Any) -> dict[str, Any] | None:
    return job.events.filter(**where).order_by("seq").values_list("data", flat=True).first()
