"""Which open jobs stand still because a part of their engine is being restarted: those whose next work is that part's.

The other part's work goes on meanwhile: a job that trains, or waits for the trainer, loses nothing by a sampler that is out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from portal.jobs import phases, reach
from portal.jobs.models import Job, State

SAMPLER, TRAINER = reach.PARTS
# After an event of this kind the job goes on with the work of this part. Version 0 is the trainer's.
_NEXT = {
    "accepted": TRAINER,
    "admitted": SAMPLER,
    "rollout_started": SAMPLER,
    "rollout_lost": SAMPLER,
    "resumed": SAMPLER,
    "step": SAMPLER,
    "rollout_ready": TRAINER,
    "train_started": TRAINER,
    "train_lost": TRAINER,
}
_BEHIND_OTHERS = frozenset({"kv", "slots", "tenant_cap"})  # what a job waits for that others give back when they have sampled


@dataclass(frozen=True, kw_only=True, slots=True)
class Standstill:
    """``part``: ``sampler`` or ``trainer``, of which none has served since ``since``."""

    part: str
    since: datetime

    def as_json(self) -> dict[str, str]:
        return {"part": self.part, "since": self.since.isoformat()}


def of(job: Job, last: dict[str, Any] | None, out: dict[str, datetime] | None) -> Standstill | None:
    """``last``: the job's newest event that tells of a phase (``portal.jobs.phases``); ``out``: see ``reach.parts_out``."""
    if not out or last is None or job.state == State.PAUSED:
        return None
    queued = last["kind"] == "waiting" and last["data__code"] in _BEHIND_OTHERS
    part = SAMPLER if queued else _NEXT.get(last["kind"])
    return Standstill(part=part, since=out[part]) if part in out else None


def of_jobs(jobs: Iterable[Job]) -> dict[int, Standstill]:
    """{job key: its standstill}; queries only while a part of some engine is out."""
    jobs = list(jobs)
    out = reach.parts_out(jobs)
    waiting = [job for job in jobs if job.pk in out]
    newest = phases.newest({job.pk: job.last_seq for job in waiting})
    found = {job.pk: of(job, newest[job.pk][-1] if newest[job.pk] else None, out[job.pk]) for job in waiting}
    return {job: standstill for job, standstill in found.items() if standstill is not None}


def of_job(job: Job) -> Standstill | None:
    return of_jobs([job]).get(job.pk)
