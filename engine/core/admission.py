"""Who gets a place next: adapter slots, the KV account, the tenants' running caps, and the order of the queue."""

from __future__ import annotations

from typing import Literal

from engine.core.fair import FairShare
from engine.core.job import JobRecord
from engine.core.kv import KvAccount
from engine.core.line import Key, TenantLines
from engine.core.policy import Policy
from engine.core.slots import AdapterSlots

Mode = Literal["open", "paused", "drain"]
Blocker = Literal["admission", "tenant_cap", "slots", "kv"]


class Admission:
    """A place is an adapter slot plus, where KV is held for life, the job's footprint.

    The first in line is never overtaken for want of room: what is released accumulates until it fits, so no job starves, however large.
    Only jobs of tenants at their running cap are passed over.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.mode: Mode = "open"
        self.slots = AdapterSlots(policy.max_active)
        self.kv = KvAccount(policy.kv_budget_bytes, _overcommit(policy))
        self.fair = FairShare()
        self._queue = self._new_queue()
        self._open: dict[str, int] = {}  # per tenant: jobs in the queue or in a place
        self._running: dict[str, int] = {}  # per tenant: jobs in a place
        self._caps: dict[str, int | None] = {}
        self._newest: dict[str, int] = {}  # per tenant: the order of the submission that says its cap and weight

    # The queue

    def enqueue(self, job: JobRecord) -> None:
        self._enter(job)
        self._queue.add(job.job, job.tenant, self._key(job))

    def withdraw(self, job: JobRecord) -> None:
        """Take a waiting job out of the queue."""
        self._queue.discard(job.job, job.tenant)
        self._leave(job.tenant)

    def reorder(self, job: JobRecord) -> None:
        """Its priority changed."""
        self._queue.add(job.job, job.tenant, self._key(job))

    def next(self) -> str | None:
        """The job that may take a place now."""
        if self.mode != "open" or not self.slots.free():
            return None
        return self._queue.first()

    def waiting(self) -> TenantLines:
        return self._queue

    # Places

    def take(self, job: JobRecord) -> bool:
        """Give the first in line its place, if its KV footprint fits."""
        if not self._reserve(job):
            return False
        self._queue.discard(job.job, job.tenant)
        return True

    def retake(self, job: JobRecord) -> bool:
        """Give a restored job its old place back, past the queue and the mode; False when it fits no longer."""
        self._enter(job)
        if not self._at_cap(job.tenant) and self.slots.free() and self._reserve(job):
            return True
        self._leave(job.tenant)
        return False

    def give_back(self, job: JobRecord) -> None:
        """The reverse of ``take`` and ``retake``."""
        self.slots.release(job.job)
        if self.kv.holds(job.job):
            self.kv.release(job.job)
        self._running[job.tenant] -= 1
        self._leave(job.tenant)
        self._park(job.tenant)

    def served(self, job: JobRecord) -> None:
        """A step of ``job`` was dispatched: its tenant's share is charged."""
        self.fair.charge(job.tenant, job.kv_bytes)
        if self.policy.admission_order == "fair":
            self._queue.touch(job.tenant)

    def blocker(self, job: JobRecord, first: JobRecord | None) -> Blocker:
        """Why ``job`` waits; ``first`` is the head of the line, which holds up all behind it."""
        if self.mode != "open":
            return "admission"
        if self._queue.is_parked(job.tenant):
            return "tenant_cap"
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
        self._queue = self._new_queue()
        for tenant in self._open:
            self._park(tenant)
        for job in waiting:
            self._queue.add(job.job, job.tenant, self._key(job))

    # Inside

    def _new_queue(self) -> TenantLines:
        fair = self.policy.admission_order == "fair"
        return TenantLines(self.fair.virtual_time if fair else lambda tenant: 0.0)

    def _key(self, job: JobRecord) -> Key:
        if self.policy.admission_order == "fifo":
            return (float(job.order),)
        # Two waiting jobs age alike, so their order never changes with time: the sooner submitted or the more important goes first.
        return (job.submitted_at - job.priority * self.policy.ageing_seconds, float(job.order))

    def _fits(self, job: JobRecord) -> bool:
        return self.policy.kv_hold != "life" or self.kv.fits(job.kv_bytes)

    def _reserve(self, job: JobRecord) -> bool:
        if self.policy.kv_hold == "life" and not self.kv.reserve(job.job, job.kv_bytes):
            return False
        self.slots.reserve(job.job)
        self._running[job.tenant] = self._running.get(job.tenant, 0) + 1
        self._park(job.tenant)
        return True

    def _rehold(self, job: JobRecord) -> None:
        """Bring one job's KV reservation in line with ``kv_hold``."""
        due = self.slots.holds(job.job) and (self.policy.kv_hold == "life" or job.phase == "rollout")
        if due and not self.kv.holds(job.job):
            self.kv.reserve(job.job, job.kv_bytes, force=True)
        elif not due and self.kv.holds(job.job):
            self.kv.release(job.job)

    def _at_cap(self, tenant: str) -> bool:
        cap = self._caps[tenant]
        return cap is not None and self._running.get(tenant, 0) >= cap

    def _park(self, tenant: str) -> None:
        if tenant in self._caps and self._at_cap(tenant):
            self._queue.park(tenant)
        else:
            self._queue.unpark(tenant)

    def _enter(self, job: JobRecord) -> None:
        """The tenant's latest submission says its cap and weight; a job that resumes brings no older ones back."""
        self._open[job.tenant] = self._open.get(job.tenant, 0) + 1
        if job.order >= self._newest.get(job.tenant, -1):
            self._newest[job.tenant] = job.order
            self._caps[job.tenant] = job.running_cap
            self.fair.join(job.tenant, job.weight)
            self._park(job.tenant)

    def _leave(self, tenant: str) -> None:
        self._open[tenant] -= 1
        if self._open[tenant]:
            return
        del self._open[tenant], self._caps[tenant], self._newest[tenant]
        self._running.pop(tenant, None)
        self.fair.leave(tenant)
        self._queue.unpark(tenant)


def _overcommit(policy: Policy) -> float:
    return 1.0 if policy.adaptive is None else policy.adaptive.overcommit
