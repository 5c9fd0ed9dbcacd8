"""What the scheduler remembers of one open job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.core.evals import EvalPlan
from engine.core.line import Key
from engine.core.messages import Stopped, Submitted
from engine.core.pace import Pace
from engine.core.policy import Policy

# queued: not admitted yet · idle: admitted, wants to roll out · evaluating: every version is committed, evaluations are still due
Phase = Literal["queued", "idle", "rollout", "ready", "training", "evaluating", "held"]


@dataclass(kw_only=True, slots=True)
class JobRecord(Pace):
    """``order`` is the job's number in the order of submission, ``turn`` its number in the line that it stands in now.

    ``failures`` counts the platform's failures on this version; it starts again with each commit.
    ``size``: of a step, in tokens if they are known, else in KV bytes. ``step_tokens``: the mean of its own steps, None before the first.
    ``since``: when its rollout or training began; ``step_since``: when its step did.
    ``at_trainer``: it holds a trainer's slot; in the phase ``training`` without one, its commit is under way.
    ``committed_at``: when it last committed, if no pause came since.
    ``charged``: the tokens that its tenant's share is charged with for the attempt under way.
    """

    job: str
    tenant: str
    steps: int
    kv_bytes: int
    weight: float
    running_cap: int | None
    priority: int
    order: int
    submitted_at: float
    evals: EvalPlan
    size: float
    step_tokens: float | None = None
    charged: float = 0.0
    version: int = 0
    attempt: int = 0
    admitted: bool = False
    phase: Phase = "queued"
    turn: int = 0
    failures: int = 0
    since: float = 0.0
    step_since: float | None = None
    committed_at: float | None = None
    batch_ready: bool = False
    at_trainer: bool = False
    pausing: bool = False
    stopping: Stopped | None = None

    @classmethod
    def of(cls, fact: Submitted, order: int) -> JobRecord:
        ready = fact.ready_attempt or 0  # an older attempt's batch is void: a newer one was dispatched after it
        plan = EvalPlan(
            steps=fact.steps, every=fact.eval_every, ends=fact.eval_ends, version=fact.version, last_evaluated=fact.last_evaluated
        )
        return cls(
            job=fact.job,
            tenant=fact.tenant,
            steps=fact.steps,
            kv_bytes=fact.kv_bytes,
            weight=fact.weight,
            running_cap=fact.running_cap,
            priority=fact.priority,
            order=order,
            submitted_at=fact.at,
            evals=plan,
            size=float(fact.kv_bytes if fact.step_tokens is None else fact.step_tokens),
            version=fact.version,
            attempt=max(fact.attempt, ready),
            batch_ready=ready > 0 and ready >= fact.attempt,
        )

    def is_at(self, phase: Phase, version: int, attempt: int) -> bool:
        """Whether an answer about (version, attempt) is the one that this job is waiting for in ``phase``."""
        return self.phase == phase and self.version == version and self.attempt == attempt

    def is_at_last_chance(self, max_attempts: int) -> bool:
        """Whether one more failure of the platform ends it, after at least one."""
        return 0 < self.failures == max_attempts - 1

    @property
    def finished(self) -> bool:
        return self.version >= self.steps

    def submission_key(self, policy: Policy) -> Key:
        """Its place among the jobs of its tenant, or of all where tenants are equal."""
        if policy.admission_order == "fifo":
            return (float(self.order),)
        # Two waiting jobs age alike, so their order never changes with time: the sooner submitted or the more important goes first.
        return self.submitted_at - self.priority * policy.ageing_seconds, float(self.order)

    def in_step(self) -> bool:
        """Whether a step of it is under way, from the start of the rollout to the commit."""
        return self.phase in ("rollout", "ready", "training")
