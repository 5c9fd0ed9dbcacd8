"""What an operator wants to see at one look: every open job, both queues in their order, who is next and why not, shares, workers, memory.

One pass over the scheduler's own records, so that nothing here can disagree with what it will do. Nothing here changes anything.
"""

from __future__ import annotations

from typing import Any

from engine.adapters import SamplerAdapters
from engine.clock import Timeline
from engine.core.job import JobRecord
from engine.core.scheduler import Scheduler
from engine.core.view import JobView
from engine.history import EngineHistory, JobHistory
from engine.ports import RolloutPort, TrainPort
from engine.queue_events import seconds_left

MOST_NEXT = 20  # of the line, the part that an operator can take in


class Overview:
    """``describe`` costs O(n log n) over open jobs and asks no port to do anything."""

    def __init__(
        self,
        *,
        history: EngineHistory,
        scheduler: Scheduler,
        adapters: SamplerAdapters,
        rollout: RolloutPort,
        train: TrainPort,
        timeline: Timeline,
    ):
        self._history = history
        self._scheduler = scheduler
        self._adapters = adapters
        self._rollout = rollout
        self._train = train
        self._timeline = timeline

    def describe(self) -> dict[str, Any]:
        scheduler, now = self._scheduler, self._timeline.monotonic()
        views = scheduler.view(now)
        return {
            "at": self._timeline.at().isoformat(),
            "open": [self._job(job, views.get(job.job), now) for job in self._history.jobs.values() if job.ended is None],
            "training": self._training(),
            "next": [self._candidate(place, views[name]) for place, name in enumerate(self._line()[:MOST_NEXT], start=1)],
            "line": len(self._line()),
            "shares": shares(scheduler),
            "workers": [*self._rollout.workers(), *self._train.workers()],
            "versions": self._adapters.loaded(),
        }

    def _job(self, job: JobHistory, view: JobView | None, now: float) -> dict[str, Any]:
        record = self._scheduler.jobs.get(job.job)
        return {
            "job": job.job,
            "tenant": job.tenant,
            "phase": view.phase if view else "waiting",
            "code": view.code if view else job.waiting_code,
            "reason": view.reason if view else "its first version is being made",
            "position": view.position if view else None,
            "admitted": view.admitted if view else False,
            "version": job.version,
            "steps": job.spec.train.steps,
            "attempt": view.attempt if view else 0,
            "priority": record.priority if record else job.priority,
            "kv_bytes": job.kv_bytes,
            "kv_held": record is not None and self._scheduler.admission.kv.holds(job.job),
            "pausing": job.pausing,
            "stopping": job.stop is not None,
            "phase_seconds": _phase_seconds(record, now),
            "shape": _shape(job, record),
            **(seconds_left(view) if view else {"next_seconds": None, "eta_seconds": None}),
        }

    def _training(self) -> dict[str, Any]:
        pipeline = self._scheduler.pipeline
        running = [job.job for job in self._scheduler.jobs.values() if job.phase == "training"]
        return {"running": running, "queue": list(pipeline.ready), "slots": self._scheduler.policy.train_slots}

    def _line(self) -> list[str]:
        """Who starts a rollout next, in order: one line where slots are held per step, else those that want a place."""
        scheduler = self._scheduler
        return scheduler.turns() if scheduler.policy.slot_hold == "step" else list(scheduler.admission.queue)

    def _candidate(self, place: int, view: JobView) -> dict[str, Any]:
        """``blocked_by``: what stands against it; of those behind the first it is the first that holds the line up."""
        record = self._scheduler.jobs[view.job]
        return {
            "place": place,
            "job": view.job,
            "tenant": view.tenant,
            "kv_bytes": record.kv_bytes,
            "code": view.code,
            "why_not": view.reason,
            "next_seconds": seconds_left(view)["next_seconds"],
        }


def shares(scheduler: Scheduler) -> list[dict[str, Any]]:
    """By tenant with open jobs: its weight, and how far its turn lies behind the line's (tokens per weight; the least is served next)."""
    accounts = scheduler.admission.fair.accounts()
    least = min((key for _, key in accounts.values()), default=0.0)
    return [{"tenant": tenant, "weight": weight, "ahead": key - least} for tenant, (weight, key) in sorted(accounts.items())]


def _phase_seconds(record: JobRecord | None, now: float) -> float | None:
    """How long its rollout or training has gone on; None in any other phase."""
    under_way = record is not None and record.phase in ("rollout", "training")
    return max(0.0, now - record.since) if under_way else None


def _shape(job: JobHistory, record: JobRecord | None) -> dict[str, Any]:
    """What one step of it is made of: enough to play it forward."""
    rollout = job.spec.rollout
    return {
        "prompts_per_step": rollout.prompts_per_step,
        "group_size": rollout.group_size,
        "max_prompt_tokens": rollout.max_prompt_tokens,
        "max_new_tokens": rollout.max_new_tokens,
        "environment": job.spec.environment.type,
        "step_tokens": record.step_tokens if record else None,
        "weight": job.submission.weight,
    }
