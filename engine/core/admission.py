"""Who gets a place next: adapter slots, the KV account, the tenants' running caps, and the order of the queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from engine.core.fair import FairShare
from engine.core.job import JobRecord
from engine.core.kv import KvAccount
from engine.core.line import TenantLines
from engine.core.policy import Policy
from engine.core.slots import AdapterSlots

Mode = Literal["open", "paused", "drain"]
Blocker = Literal["", "admission", "tenant_cap", "slots", "kv"]


class Admission:
    """A job is admitted once, and counts against its tenant's cap until its end. What it holds meanwhile is the policy's choice:

        slot_hold life    an adapter slot from its admission         step      from the start of a rollout to its commit
        kv_hold   life    its footprint from its admission           rollout   while it rolls out

    The first in line is never overtaken for want of room: what is released accumulates until it fits, so no job starves, however large.
    Only jobs of tenants at their running cap are passed over.

    ``share_changed(tenant)`` is called when its place in the fair order has become another.
    """

    def __init__(self, policy: Policy, share_changed: Callable[[str], None]) -> None:
        self.policy = policy
        self.fair = FairShare()
        self._share_changed = share_changed
        self.mode: Mode = "open"
        self.slots = AdapterSlots(policy.max_active)
        self.kv = KvAccount(policy.kv_budget_bytes, _overcommit(policy))
        self.queue = self._new_queue()
        self._open: dict[str, int] = {}  # per tenant: jobs in the queue or admitted
        self._running: dict[str, int] = {}  # per tenant: jobs admitted
        self._caps: dict[str, int | None] = {}
        self._newest: dict[str, int] = {}  # per tenant: the order of the submission that says its cap and weight

    # The queue

    def enqueue(self, job: JobRecord) -> None:
        self._enter(job)
        self._line_up(job)

    def withdraw(self, job: JobRecord) -> None:
        """Take a waiting job out of the queue."""
        self.queue.discard(job.job, job.tenant)
        self._leave(job.tenant)

    def reorder(self, job: JobRecord) -> None:
        """Its priority changed."""
        self._line_up(job)

    def next(self) -> str | None:
        """The job that may be admitted now, where slots are held for life."""
        return self.queue.first() if self.mode == "open" and self.slots.free() else None

    # Places

    def take(self, job: JobRecord) -> bool:
        """Admit the first in line, if what it holds for life is to be had."""
        if not self._reserve(job):
            return False
        self.queue.discard(job.job, job.tenant)
        return True

    def retake(self, job: JobRecord) -> bool:
        """Admit a restored job again, past the queue and the mode; False when there is no room for it any more."""
        self._enter(job)
        if not self._at_cap(job.tenant) and self._reserve(job):
            return True
        self._leave(job.tenant)
        return False

    def give_back(self, job: JobRecord) -> None:
        """The reverse of ``take`` and ``retake``."""
        job.admitted = False
        if self.slots.holds(job.job):
            self.slots.release(job.job)
        if self.kv.holds(job.job):
            self.kv.release(job.job)
        self._running[job.tenant] -= 1
        self._leave(job.tenant)
        self._park(job.tenant)

    # What an admitted job holds only at times

    def has_room(self, job: JobRecord) -> bool:
        """Whether what ``job`` needs for a rollout, beyond what it holds already, is to be had."""
        return self.has_slot(job) and (self.policy.kv_hold != "rollout" or self.kv.fits(job.kv_bytes))

    def has_slot(self, job: JobRecord) -> bool:
        return self.policy.slot_hold != "step" or self.slots.free()

    def begin_rollout(self, job: JobRecord) -> None:
        """It has room; its tenant's share is charged with the estimate of the step."""
        if self.policy.slot_hold == "step":
            self.slots.reserve(job.job)
        if self.policy.kv_hold == "rollout":
            self.kv.reserve(job.job, job.kv_bytes)
        job.charged = self.fair.expected(job.size) if job.step_tokens is None else job.step_tokens
        self.fair.started(job.tenant, job.charged)
        self._share_changed(job.tenant)

    def end_rollout(self, job: JobRecord, tokens: int | None) -> None:
        """It took so many ``tokens``; None: nobody knows, so the estimate stands."""
        if self.policy.kv_hold == "rollout":
            self.kv.release(job.job)
        self.fair.ended(job.tenant, job.charged, job.charged if tokens is None else tokens)
        if tokens is not None:
            self.fair.learn(job.size, tokens)
            job.step_tokens = float(tokens) if job.step_tokens is None else (job.step_tokens + tokens) / 2
        job.charged = 0.0
        self._share_changed(job.tenant)

    def keep_for_step(self, job: JobRecord) -> None:
        """A batch that a restart brought back goes on as if its rollout had just ended."""
        if self.policy.slot_hold == "step" and not self.slots.holds(job.job):
            self.slots.reserve(job.job, force=True)

    def end_step(self, job: JobRecord) -> None:
        """It has committed, or its attempt is lost: where slots are held per step, others may be before it now."""
        if self.policy.slot_hold == "step" and self.slots.holds(job.job):
            self.slots.release(job.job)

    def wants_rollout(self, job: JobRecord) -> None:
        """It has nothing under way and is about to wait for its turn."""
        if self.policy.admission_order == "fair":
            self._catch_up(job.tenant)

    # People and changes

    def blocker(self, job: JobRecord, first: JobRecord | None) -> Blocker:
        """Why ``job`` is not admitted; ``first`` is the head of the line, which holds up all behind it.

        Empty where slots are held per step: then it waits for its turn to roll out, as admitted jobs do.
        """
        if self.mode != "open":
            return "admission"
        if self.queue.is_parked(job.tenant):
            return "tenant_cap"
        if self.policy.slot_hold == "step":
            return ""
        if not self.slots.free():
            return "slots"
        head = first or job
        return "slots" if self._fits(head) else "kv"

    def change(self, policy: Policy, jobs: list[JobRecord]) -> None:
        """Adopt ``policy`` while ``jobs`` (all open ones) stand where they are. Nobody loses a place."""
        self.policy = policy
        self.slots.total = policy.max_active
        self.kv.budget_bytes, self.kv.overcommit = policy.kv_budget_bytes, _overcommit(policy)
        for job in jobs:
            self._rehold(job)
        waiting = [job for job in jobs if job.phase == "queued"]
        self.queue = self._new_queue()
        for tenant in self._open:
            self._park(tenant)
        for job in waiting:
            self._line_up(job)

    # Inside

    def _new_queue(self) -> TenantLines:
        return TenantLines(self.fair.key if self.policy.admission_order == "fair" else None)

    def _line_up(self, job: JobRecord) -> None:
        if not self.queue.is_in_order(job.tenant):
            self._catch_up(job.tenant)
        self.queue.add(job.job, job.tenant, job.submission_key(self.policy))

    def _catch_up(self, tenant: str) -> None:
        if self.fair.catch_up(tenant):
            self._share_changed(tenant)

    def _fits(self, job: JobRecord) -> bool:
        return self.policy.kv_hold != "life" or self.kv.fits(job.kv_bytes)

    def _reserve(self, job: JobRecord) -> bool:
        if self.policy.slot_hold == "life" and not self.slots.free():
            return False
        if self.policy.kv_hold == "life" and not self.kv.reserve(job.job, job.kv_bytes):
            return False
        if self.policy.slot_hold == "life":
            self.slots.reserve(job.job)
        job.admitted = True
        self._running[job.tenant] = self._running.get(job.tenant, 0) + 1
        self._park(job.tenant)
        return True

    def _rehold(self, job: JobRecord) -> None:
        """Bring what one job holds in line with the policy."""
        slot_due = job.admitted and (self.policy.slot_hold == "life" or job.in_step())
        if slot_due and not self.slots.holds(job.job):
            self.slots.reserve(job.job, force=True)
        elif not slot_due and self.slots.holds(job.job):
            self.slots.release(job.job)
        kv_due = job.admitted and (self.policy.kv_hold == "life" or job.phase == "rollout")
        if kv_due and not self.kv.holds(job.job):
            self.kv.reserve(job.job, job.kv_bytes, force=True)
        elif not kv_due and self.kv.holds(job.job):
            self.kv.release(job.job)

    def _at_cap(self, tenant: str) -> bool:
        cap = self._caps[tenant]
        return cap is not None and self._running.get(tenant, 0) >= cap

    def _park(self, tenant: str) -> None:
        if tenant in self._caps and self._at_cap(tenant):
            self.queue.park(tenant)
        elif self.queue.is_parked(tenant):
            if tenant in self._caps:
                self._catch_up(tenant)  # its own jobs kept it waiting, not others
            self.queue.unpark(tenant)

    def _enter(self, job: JobRecord) -> None:
        """The tenant's latest submission says its cap and weight; a job that resumes brings no older ones back."""
        self._open[job.tenant] = self._open.get(job.tenant, 0) + 1
        if job.order >= self._newest.get(job.tenant, -1):
            self._newest[job.tenant] = job.order
            self._caps[job.tenant] = job.running_cap
            self.fair.join(job.tenant, job.weight)
            self._park(job.tenant)
            self._share_changed(job.tenant)

    def _leave(self, tenant: str) -> None:
        self._open[tenant] -= 1
        if self._open[tenant]:
            return
        del self._open[tenant], self._caps[tenant], self._newest[tenant]
        self._running.pop(tenant, None)
        self.fair.leave(tenant)
        self.queue.unpark(tenant)


def _overcommit(policy: Policy) -> float:
    return 1.0 if policy.adaptive is None else policy.adaptive.overcommit
