"""The engine's ``/status`` in Prometheus' text format (version 0.0.4). Figures only; the source of all of them is the status itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = ("queued", "running", "paused", "succeeded", "failed", "cancelled")
Sample = tuple[dict[str, str], float]


def prometheus(status: dict[str, Any]) -> str:
    """``status`` is the answer of ``ManagerHandle.status``."""
    states = Counter(job["state"] for job in status["jobs"])
    phases = Counter(job["phase"] for job in status["jobs"] if job["phase"])
    committed = sum(job["version"] for job in status["jobs"])
    families = [
        ("marlaas_jobs", "Jobs by state", [({"state": state}, states[state]) for state in STATES]),
        ("marlaas_jobs_in_phase", "Open jobs by phase", [({"phase": phase}, count) for phase, count in sorted(phases.items())]),
        ("marlaas_versions", "Committed versions of all jobs that are not deleted", [({}, committed)]),
        ("marlaas_kv_reserved_bytes", "KV cache reserved by admitted jobs", [({}, status["kv"]["reserved_bytes"])]),
        ("marlaas_kv_budget_bytes", "KV cache that admitted jobs may reserve", _if_number({}, status["kv"]["budget_bytes"])),
        ("marlaas_slots_used", "Adapter slots in use", [({}, status["slots"]["used"])]),
        ("marlaas_slots_total", "Adapter slots for jobs", [({}, status["slots"]["total"])]),
        ("marlaas_admission_open", "1 while new jobs are admitted", [({}, status["admission"] == "open")]),
        ("marlaas_disk_free_share", "Of the disk that holds the state folder", _disk(status.get("disk", {}))),
        ("marlaas_epoch", "How many managers this engine has had", [({}, status["epoch"])]),
        ("marlaas_uptime_seconds", "Age of this manager", [({}, status["uptime_seconds"])]),
        ("marlaas_reward_sandbox", "What holds tenants' code, by tier; none: it does not run", _tier(status.get("sandbox", {}))),
        ("marlaas_sampler", "The sampler's own counters", _numbers(status["sampler"])),
    ]
    return "".join(_family(name, text, samples) for name, text, samples in families if samples)


def _disk(disk: dict[str, int]) -> list[Sample]:
    return [({}, round(disk["free_bytes"] / disk["total_bytes"], 4))] if disk.get("total_bytes") else []


def _tier(sandbox: dict[str, Any]) -> list[Sample]:
    return [({"tier": sandbox["tier"]}, 1)] if "tier" in sandbox else []


def _numbers(values: dict[str, Any]) -> list[Sample]:
    return [sample for name, value in sorted(values.items()) for sample in _if_number({"counter": name}, value)]


def _if_number(labels: dict[str, str], value: Any) -> list[Sample]:
    return [(labels, value)] if isinstance(value, int | float) else []


def _family(name: str, text: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    escaped = (f'{name}="{_escape(value)}"' for name, value in labels.items())
    return "{" + ",".join(escaped) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
