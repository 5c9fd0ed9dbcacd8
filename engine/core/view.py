"""Where a job stands, in words: phase, place in its line, what it waits for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine.core.forecast import UNKNOWN, Forecast, forecast_all

if TYPE_CHECKING:
    from engine.core.job import JobRecord
    from engine.core.scheduler import Scheduler

ViewPhase = Literal["waiting", "rollout", "ready", "training", "evaluating", "held"]
Code = Literal["", "kv", "slots", "tenant_cap", "admission", "paused", "barrier", "rollouts", "trainer", "stopping"]

TEXTS: dict[str, str] = {
    "": "running",
    "kv": "waits until enough KV-cache memory is free",
    "memory": "waits until another rollout ends: the sampler's KV-cache memory is as full as it can be without losing speed",
    "slots": "waits for a free adapter slot",
    "tenant_cap": "waits for another job of its organisation to end: the plan's number of running jobs is reached",
    "admission": "waits because the operator has paused the start of new work",
    "paused": "paused; it keeps its progress and goes on when it is resumed",
    "pausing": "will pause when the running step is committed",
    "barrier": "waits for the other jobs of this round: the engine runs in a synchronous regime",
    "rollouts": "waits for another job's rollout to end",
    "alone": "waits because a step that was lost before is repeated with nothing else in rollout",
    "trainer": "its batch is ready and waits for the trainer",
    "trainer_first": "waits for the trainer, which shares the devices with the rollouts",
    "stopping": "will stop when the running training step is committed",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobView:
    """``position``: 1 is next in the line that the job stands in, None where there is none. ``code``: empty when nothing holds it up.

    ``next_seconds``, ``eta_seconds``: see ``forecast.Forecast``.
    """

    job: str
    tenant: str
    phase: ViewPhase
    admitted: bool
    version: int
    steps: int
    attempt: int
    position: int | None
    code: Code
    reason: str
    next_seconds: float | None = None
    eta_seconds: float | None = None


def explain_all(scheduler: Scheduler, at: float) -> dict[str, JobView]:
    positions, forecasts = _positions(scheduler), forecast_all(scheduler, at)
    head = _head(scheduler)
    return {job.job: _explain(scheduler, job, positions.get(job.job), head, forecasts[job.job]) for job in scheduler.jobs.values()}


def explain_one(scheduler: Scheduler, job: JobRecord) -> JobView:
    """Without a forecast, but without looking at every job either."""
    return _explain(scheduler, job, _position(scheduler, job), _head(scheduler), UNKNOWN)


def reasons(scheduler: Scheduler, jobs: Iterable[JobRecord]) -> dict[str, Code]:
    """What each of ``jobs`` that waits for its start or its next rollout waits for. O(1) each."""
    head = _head(scheduler)
    return {job.job: _why(scheduler, job, head)[0] for job in jobs if job.phase in ("queued", "idle")}


def _head(scheduler: Scheduler) -> JobRecord | None:
    name = scheduler.admission.queue.first()
    return None if name is None else scheduler.jobs[name]


def _position(scheduler: Scheduler, job: JobRecord) -> int | None:
    queue, pipeline = scheduler.admission.queue, scheduler.pipeline
    if job.phase == "queued":
        place, lines = queue.place(job.job, job.tenant), [queue, pipeline.rollouts]
    elif job.phase == "idle" and pipeline.is_in_line(job):
        place, lines = pipeline.place(job), [pipeline.rollouts, queue]
    else:
        return _positions(scheduler).get(job.job)
    return 1 + sum(line.count_before(place) for line in (lines if scheduler.policy.slot_hold == "step" else lines[:1]))


def _positions(scheduler: Scheduler) -> dict[str, int]:
    pipeline = scheduler.pipeline
    lines = (*_rollout_lines(scheduler), pipeline.ready)
    return {job: place for line in lines for place, job in enumerate(line, start=1)}


def _rollout_lines(scheduler: Scheduler) -> Iterable[Iterable[str]]:
    """Where slots are held per step, queue and admitted jobs are one line."""
    queue, pipeline = scheduler.admission.queue, scheduler.pipeline
    if scheduler.policy.slot_hold == "life":
        return queue, [*pipeline.rollouts, *pipeline.rounds.waiting()]
    return (scheduler.turns(),)


def _explain(scheduler: Scheduler, job: JobRecord, position: int | None, head: JobRecord | None, forecast: Forecast) -> JobView:
    code, reason = _why(scheduler, job, head)
    return JobView(
        job=job.job,
        tenant=job.tenant,
        phase="waiting" if job.phase == "queued" or job.phase == "idle" else job.phase,
        admitted=job.admitted,
        version=job.version,
        steps=job.steps,
        attempt=job.attempt,
        position=position,
        code=code,
        reason=reason if position is None or position == 1 or code == "tenant_cap" else f"{reason}; {position - 1} before it",
        next_seconds=forecast.next_seconds,
        eta_seconds=forecast.eta_seconds,
    )


def _why(scheduler: Scheduler, job: JobRecord, head: JobRecord | None) -> tuple[Code, str]:
    if job.stopping:
        return "stopping", TEXTS["stopping"]
    if job.phase == "held":
        return "paused", TEXTS["paused"]
    if job.phase == "queued":
        blocker = scheduler.admission.blocker(job, head)
        return (blocker, TEXTS[blocker]) if blocker else _why_not_in_turn(scheduler, job)
    if job.phase == "idle":
        return _why_idle(scheduler, job)
    if job.phase == "ready":
        return _why_ready(scheduler)
    return ("paused", TEXTS["pausing"]) if job.pausing else ("", TEXTS[""])


def _why_ready(scheduler: Scheduler) -> tuple[Code, str]:
    if scheduler.pipeline.may_train():
        return "trainer", TEXTS["trainer"]
    return ("barrier", TEXTS["barrier"]) if scheduler.policy.barrier else ("rollouts", TEXTS["rollouts"])


def _why_idle(scheduler: Scheduler, job: JobRecord) -> tuple[Code, str]:
    pipeline = scheduler.pipeline
    if pipeline.draining:
        return "admission", TEXTS["admission"]
    if not pipeline.is_in_line(job):
        return "barrier", TEXTS["barrier"]
    return _why_not_in_turn(scheduler, job)


def _why_not_in_turn(scheduler: Scheduler, job: JobRecord) -> tuple[Code, str]:
    policy, pipeline = scheduler.policy, scheduler.pipeline
    if policy.collocated and not pipeline.may_roll_out():
        return "trainer", TEXTS["trainer_first"]
    if pipeline.alone is not None or pipeline.must_wait_alone(job.job):
        return "rollouts", TEXTS["alone"]
    if policy.max_rollouts is not None and pipeline.rolling >= policy.max_rollouts:
        return "rollouts", TEXTS["rollouts"]
    if not scheduler.admission.has_slot(job):
        return "slots", TEXTS["slots"]
    return "kv", TEXTS["memory" if pipeline.is_memory_full() else "kv"]
