"""What admitted jobs wait for: permits to roll out, the barrier of synchronous regimes, and the trainer's slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from engine.core.adaptive import Adaptive, Concurrency
from engine.core.job import JobRecord
from engine.core.line import Key, Line, OneLine, Place, TenantKey, TenantLines
from engine.core.policy import Policy
from engine.core.rounds import Rounds


class Pipeline:
    """Two lines: ``rollouts`` (idle jobs) and ``ready`` (jobs with a finished batch).

    ``ready`` is served first come first, or by priority. ``rollouts`` is served in turn; by tenant (``tenant_key``, the least first) where
    the admission order is fair; and in the order of submission where slots are held per step, since it goes with the queue then.

    A job at its ``last_chances`` rolls out ``alone``: what breaks the sampler then was its own doing, and a neighbour that was only
    near when another job broke it gets a clean attempt.

    Every ``…_began`` has its ``…_ended``. KV held per rollout is the scheduler's business, not counted here.
    """

    def __init__(self, policy: Policy, jobs: Mapping[str, JobRecord], tenant_key: Callable[[str], TenantKey]) -> None:
        self.policy = policy
        self._jobs = jobs
        self._tenant_key = tenant_key
        self.draining = False
        self.rollouts = self._new_rollouts()
        self.ready = Line()
        self.rounds = Rounds()
        self.rolling = 0
        self.training = 0  # at the trainer
        self.committing = 0  # trained, but not committed yet
        self.last_chances: set[str] = set()
        self.alone: str | None = None
        self.concurrency = None if policy.adaptive is None else Concurrency(policy.adaptive)
        self._turns = 0

    # Lines

    def want_rollout(self, job: JobRecord) -> None:
        """Join the line, or under a barrier wait for the next round."""
        if job.is_at_last_chance(self.policy.max_attempts):
            self.last_chances.add(job.job)
        if self.policy.barrier and self.rounds.is_joinable():
            self.rounds.join((job.job,))
        if self.policy.barrier and job.job not in self.rounds:
            self.rounds.wait(job.job)
        else:
            self._line_up(job)

    def want_training(self, job: JobRecord) -> None:
        if self.policy.barrier:
            self.rounds.join((job.job,))  # a restored batch belongs to the round that it finds
        job.turn = self._next_turn()
        self.ready.add(job.job, self._train_key(job))

    def reorder(self, job: JobRecord) -> None:
        """Its priority changed while it waits."""
        if job.phase == "ready":
            self.ready.add(job.job, self._train_key(job))
        elif self.is_in_line(job):
            self.rollouts.add(job.job, job.tenant, self._rollout_key(job))

    def leave(self, job: JobRecord) -> None:
        """Wait for nothing any more."""
        self.last_chances.discard(job.job)
        self.rollouts.discard(job.job, job.tenant)
        self.ready.discard(job.job)
        self.rounds.leave(job.job)

    def open_round(self) -> None:
        """Let the next round begin if the last one is over."""
        if self.policy.barrier and self.rounds.over():
            for name in self.rounds.open():
                self._line_up(self._jobs[name])

    def is_in_line(self, job: JobRecord) -> bool:
        """Whether it stands in the line of rollouts: not so while it waits for the next round."""
        return self.rollouts.holds(job.job, job.tenant)

    def place(self, job: JobRecord) -> Place:
        """Raises ``KeyError`` when it does not stand in the line of rollouts."""
        return self.rollouts.place(job.job, job.tenant)

    # Who is next

    def next_rollout(self) -> str | None:
        if not self.may_roll_out():
            return None
        name = self.rollouts.first()
        return None if name is None or self.must_wait_alone(name) else name

    def must_wait_alone(self, name: str) -> bool:
        """Whether a job's last attempt waits until nothing else rolls out."""
        return self.rolling > 0 and name in self.last_chances

    def next_training(self) -> str | None:
        if self.training >= self.policy.train_slots or not self.may_train():
            return None
        return self.ready.first()

    def next_when_free(self) -> str | None:
        """Who will be next at the trainer as things stand; None while a trainer is free."""
        return self.ready.first() if self.training >= self.policy.train_slots else None

    def may_train(self) -> bool:
        """Whether the regime allows a training to start now, trainer slots aside."""
        return not (self.policy.collocated and self.rolling) and self._round_is_in()

    def may_roll_out(self) -> bool:
        """Whether the regime allows a rollout to start now, KV aside."""
        if self.draining or self.alone is not None:
            return False
        if self.policy.max_rollouts is not None and self.rolling >= self.policy.max_rollouts:
            return False
        if self.is_memory_full():
            return False
        return not (self.policy.collocated and (self.training or (len(self.ready) and self._round_is_in())))

    def is_memory_full(self) -> bool:
        """Whether, by what was measured of the sampler's cache, no further job should roll out beside those that do."""
        return self.concurrency is not None and self.rolling >= self.concurrency.limit

    # Work under way

    def rollout_began(self, job: JobRecord) -> None:
        self.rollouts.discard(job.job, job.tenant)
        self.rolling += 1
        if job.job in self.last_chances:
            self.alone = job.job

    def rollout_ended(self, job: JobRecord) -> None:
        self.rolling -= 1
        self.last_chances.discard(job.job)
        if self.alone == job.job:
            self.alone = None

    def training_began(self, job: JobRecord) -> None:
        self.ready.discard(job.job)
        self.training += 1
        job.at_trainer = True
        self.rounds.training_began()

    def left_trainer(self, job: JobRecord) -> None:
        """Its commit is still to come."""
        job.at_trainer = False
        self.training -= 1
        self.committing += 1

    def training_ended(self, job: JobRecord) -> None:
        """Well or badly, at the trainer or at the commit."""
        if job.at_trainer:
            self.left_trainer(job)
        self.committing -= 1

    def change(self, policy: Policy, jobs: Iterable[JobRecord]) -> None:
        """Adopt ``policy`` while ``jobs`` (all open ones) stand where they are."""
        in_line, had_barrier, self.policy = set(self.rollouts), self.policy.barrier, policy
        self._change_adaptive(policy.adaptive)
        jobs = list(jobs)
        self.last_chances = {job.job for job in jobs if job.is_at_last_chance(policy.max_attempts) and job.phase in ("idle", "rollout")}
        self.alone = self.alone if self.alone in self.last_chances else None
        self._rebuild_lines(jobs, in_line)
        if not policy.barrier:
            for name in self.rounds.disband():
                self._line_up(self._jobs[name])
        elif not had_barrier:
            self.rounds.join(job.job for job in jobs if job.phase in ("idle", "rollout", "ready", "training"))

    # Inside

    def _change_adaptive(self, adaptive: Adaptive | None) -> None:
        """A limit that was found is kept under new parameters."""
        if adaptive is None:
            self.concurrency = None
        elif self.concurrency is None:
            self.concurrency = Concurrency(adaptive)
        else:
            self.concurrency.adaptive = adaptive

    def _round_is_in(self) -> bool:
        """Whether no barrier keeps ready batches from the trainer: every batch of the round is there, or no more will come."""
        return not self.policy.barrier or self.draining or self.rounds.all_in(len(self.ready) + self.training + self.committing)

    def _new_rollouts(self) -> TenantLines | OneLine:
        return TenantLines(self._tenant_key) if self.policy.admission_order == "fair" else OneLine()

    def _rebuild_lines(self, jobs: Iterable[JobRecord], in_line: set[str]) -> None:
        self.rollouts = self._new_rollouts()
        for job in jobs:
            if job.job in in_line:
                self.rollouts.add(job.job, job.tenant, self._rollout_key(job))
            if job.phase == "ready":
                self.ready.add(job.job, self._train_key(job))

    def _line_up(self, job: JobRecord) -> None:
        job.turn = self._next_turn()
        self.rollouts.add(job.job, job.tenant, self._rollout_key(job))

    def _rollout_key(self, job: JobRecord) -> Key:
        return job.submission_key(self.policy) if self.policy.slot_hold == "step" else (float(job.turn),)

    def _train_key(self, job: JobRecord) -> Key:
        return (-job.priority, job.turn) if self.policy.train_order == "priority" else (job.turn,)

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns
