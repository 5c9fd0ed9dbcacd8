"""What the events say: the state of every job, as a fold over its history.

The manager applies each event as it writes it, and a restarted one applies all of them again: one code for both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from engine.doctor.examine import shortened
from engine.doctor.figures import Eval, Step, eval_of, step_of
from engine.probe_pace import StepPace
from engine.spec import JobSpec, Submission


@dataclass(kw_only=True, slots=True)
class JobHistory:
    """One job. Of its current version: ``attempt``, ``ready`` (data of its ``rollout_ready``), ``idle_since`` (epoch seconds).

    ``next_prompt``: the next step's place in the endless order of prompts (``data.draw_rows``).
    ``evaluations``: by version. ``figures``: of its steps, perhaps without their middle. ``findings``: codes of the doctor's open ones.
    ``silent_steps``: steps without signal in a row, since it was resumed last. ``pause``: the data of its ``pause_requested``.
    """

    job: str
    submission: Submission
    kv_bytes: int
    accepted_at: datetime
    priority: int
    idle_since: float
    weights_sha256: str = ""
    version: int = 0
    next_prompt: int = 0
    attempt: int = 0
    ready: dict[str, Any] | None = None
    admitted: bool = False
    pausing: bool = False
    paused: bool = False
    stop: dict[str, Any] | None = None
    first_commit_at: datetime | None = None
    last_commit_at: datetime | None = None
    last_evaluated: int = -1
    evaluations: dict[int, Eval] = field(default_factory=dict)
    figures: list[Step] = field(default_factory=list)
    findings: set[str] = field(default_factory=set)
    silent_steps: int = 0
    pause: dict[str, Any] = field(default_factory=dict)
    waiting_code: str = ""
    ended: dict[str, Any] | None = None
    ended_at: datetime | None = None
    deleted: bool = False
    deleted_versions: set[int] = field(default_factory=set)
    completions_deleted: bool = False

    @property
    def spec(self) -> JobSpec:
        return self.submission.spec

    @property
    def tenant(self) -> str:
        return self.submission.tenant

    @property
    def state(self) -> str:
        """queued | running | paused | succeeded | failed | cancelled."""
        if self.ended is not None:
            return self.ended["state"]
        if self.paused:
            return "paused"
        return "running" if self.admitted else "queued"

    def apply(self, kind: str, data: dict[str, Any], at: datetime) -> None:
        """Take one event in. Kinds that change nothing here are ignored."""
        if (change := _CHANGES.get(kind)) is not None:
            change(self, data, at)


@dataclass(kw_only=True, slots=True)
class EngineHistory:
    """All jobs in the order of their acceptance, and what operators have set."""

    jobs: dict[str, JobHistory] = field(default_factory=dict)
    admission: str = "open"
    policy_changes: dict[str, Any] = field(default_factory=dict)
    pace: StepPace = field(default_factory=StepPace)

    def apply(self, job: str, kind: str, data: dict[str, Any], at: datetime) -> None:
        if kind == "accepted":
            self.jobs[job] = accepted(job, data, at)
        elif kind == "admission":
            self.admission = data["mode"]
        elif kind == "policy":
            self.policy_changes |= data["changes"]
            for name in data.get("usual", ()):
                del self.policy_changes[name]
        elif job in self.jobs:
            self.jobs[job].apply(kind, data, at)
            if kind == "step":
                self.pace.observe(data)


def accepted(job: str, data: dict[str, Any], at: datetime) -> JobHistory:
    """The beginning of a job: ``data`` is that of its ``accepted`` event."""
    submission = Submission.model_validate(data["submission"])
    return JobHistory(
        job=job,
        submission=submission,
        kv_bytes=data["kv_bytes"],
        accepted_at=at,
        priority=submission.priority,
        idle_since=at.timestamp(),
        weights_sha256=data.get("weights_sha256", ""),
    )


def _waiting(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.waiting_code = data["code"]


def _admitted(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.admitted = True
    job.waiting_code = ""


def _rollout_started(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.attempt = data["attempt"]
    job.ready = None
    job.waiting_code = ""


def _rollout_ready(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.ready = data


def _step(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.version = data["version"]
    job.next_prompt += data["rollout"].get("prompts_drawn") or job.spec.rollout.prompts_per_step
    job.attempt = 0
    job.ready = None
    job.figures = shortened(job.figures)
    job.figures.append(step_of(data))
    job.silent_steps = job.silent_steps + 1 if data["skipped"] == "no_signal" else 0
    job.first_commit_at = job.first_commit_at or at
    job.last_commit_at = at
    job.idle_since = at.timestamp()


def _eval(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.last_evaluated = max(job.last_evaluated, data["version"])
    job.evaluations[data["version"]] = eval_of(data)


def _finding(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.findings.add(data["code"])


def _finding_over(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.findings.discard(data["code"])


def _warning(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    if data["code"] == "eval_failed":
        job.last_evaluated = max(job.last_evaluated, data["version"])


def _pause_requested(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.pausing, job.pause = True, data


def _paused(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.paused = True
    job.admitted = False
    job.waiting_code = ""


def _resumed(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.pausing = job.paused = False
    job.silent_steps = 0
    job.idle_since = at.timestamp()


def _stop_requested(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.stop = data


def _priority(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.priority = data["priority"]


def _ended(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.ended, job.ended_at = data, at
    job.admitted = job.paused = False


def _deleted(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.deleted = True


def _completions_deleted(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.completions_deleted = True


def _version_deleted(job: JobHistory, data: dict[str, Any], at: datetime) -> None:
    job.deleted_versions.add(data["version"])


_CHANGES = {
    "waiting": _waiting,
    "admitted": _admitted,
    "rollout_started": _rollout_started,
    "rollout_ready": _rollout_ready,
    "step": _step,
    "eval": _eval,
    "finding": _finding,
    "finding_over": _finding_over,
    "warning": _warning,
    "pause_requested": _pause_requested,
    "paused": _paused,
    "resumed": _resumed,
    "stop_requested": _stop_requested,
    "priority": _priority,
    "ended": _ended,
    "deleted": _deleted,
    "version_deleted": _version_deleted,
    "completions_deleted": _completions_deleted,
}
