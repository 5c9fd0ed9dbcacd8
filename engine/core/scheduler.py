"""The scheduler: facts in, commands out. Pure: no clock, no I/O, no randomness.

    Submitted ─▶ queued ─Admit─▶ idle ─StartRollout─▶ rollout ─RolloutDone─▶ ready ─StartTrain─▶ training ─TrainDone─┐
                   ▲              ▲ ▲                    │ RolloutFailed        ▲                   │ TrainFailed     │
                   │              │ └────────────────────┘                      └───────────────────┘                 │
                 held ◀───Hold────┼──────────────── version + 1, and again until the last ───────────────────────────┤
                                  └───────────────────────────────────────────────────────────────────────────────────┤
                                                                            Release ◀── evaluating (if still due) ◀────┘

The trainer is free for the next batch with ``Trained``, while the commit of the last is still under way.
Each fact moves one job; then ``_dispatch`` hands free places, trainer slots and rollout permits to the first in each line. Work per fact
does not grow with the number of jobs. A fact about an unknown job, an older version or another attempt changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from engine.core import messages as m
from engine.core.admission import Admission
from engine.core.job import JobRecord
from engine.core.pace import Pace
from engine.core.pipeline import Pipeline
from engine.core.policy import Policy
from engine.core.view import Code, JobView, explain_all, explain_one, reasons


class Scheduler:
    """Decides what every job does next. One instance, one thread; drivers are ``engine.manager`` and ``engine.sim``."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.jobs: dict[str, JobRecord] = {}
        self.admission = Admission(policy, self._share_changed)
        self.pipeline = Pipeline(policy, self.jobs, self.admission.fair.key)
        self.pace = Pace()  # over all jobs
        self.at = float("-inf")  # the latest fact's time
        self._orders = 0
        self._prepared: m.PrepareTrain | None = None  # the last that was said
        self._out: list[m.Command] = []
        self._handlers: dict[type[m.Fact], Callable[[Any], None]] = {
            m.Submitted: self._submitted,
            m.RolloutDone: self._rollout_done,
            m.RolloutFailed: self._rollout_failed,
            m.LoadFailed: self._load_failed,
            m.Trained: self._trained,
            m.TrainDone: self._train_done,
            m.TrainFailed: self._train_failed,
            m.WorkerLost: self._worker_lost,
            m.EvalDone: self._eval_done,
            m.Paused: self._paused,
            m.Resumed: self._resumed,
            m.Stopped: self._stopped,
            m.Reprioritised: self._reprioritised,
            m.PolicyChanged: self._policy_changed,
            m.AdmissionChanged: self._admission_changed,
            m.KvSample: self._kv_sample,
            m.Tick: lambda fact: None,
        }

    def handle(self, fact: m.Fact) -> list[m.Command]:
        """Take one fact in; return what is to be done now, in this order. Raises ``KeyError`` for a fact of an unknown type."""
        self._out = []
        if fact.at > self.at:
            self.at = fact.at
        self._handlers[type(fact)](fact)
        self._dispatch()
        return self._out

    def view(self, at: float | None = None) -> dict[str, JobView]:
        """Where every open job stands, what it waits for, and until when; ``at``: now, on the facts' clock (default: the latest fact).

        O(n log n): for people, not for decisions.
        """
        return explain_all(self, self.at if at is None else max(at, self.at))

    def view_of(self, job: str) -> JobView | None:
        """As ``view``, of one open job and without its forecast: no work for each of the others."""
        record = self.jobs.get(job)
        return None if record is None else explain_one(self, record)

    def waiting_for(self, job: str | None = None) -> dict[str, Code]:
        """What each job (or this one) that is queued or between steps waits for. O(n)."""
        return reasons(self, self.jobs.values() if job is None else filter(None, [self.jobs.get(job)]))

    def turns(self) -> list[str]:
        """Queue and admitted jobs in the one order that they have where slots are held per step. O(n log n)."""
        return [job for _, _, job in heapq.merge(self.admission.queue.places(), self.pipeline.rollouts.places())]

    # Facts: the queue

    def _submitted(self, fact: m.Submitted) -> None:
        if fact.job in self.jobs:
            return
        job = JobRecord.of(fact, self._orders)
        self._orders += 1
        self.jobs[job.job] = job
        if job.finished:
            self._wind_up(job)
        elif fact.paused and not (fact.admitted and job.batch_ready):
            self._hold(job)
        elif fact.admitted and self.admission.retake(job):
            job.pausing = fact.paused
            self._settle(job)
        elif fact.paused:
            self._hold(job)
        else:
            self.admission.enqueue(job)

    def _paused(self, fact: m.Paused) -> None:
        job = self.jobs.get(fact.job)
        if job is None or job.stopping or job.phase in ("held", "evaluating"):
            return
        if job.phase in ("queued", "idle"):
            self._vacate(job)
            self._hold(job)
        else:
            job.pausing = True

    def _resumed(self, fact: m.Resumed) -> None:
        job = self.jobs.get(fact.job)
        if job is None:
            return
        job.pausing = False
        if job.phase == "held":
            job.phase = "queued"
            self.admission.enqueue(job)

    def _stopped(self, fact: m.Stopped) -> None:
        job = self.jobs.get(fact.job)
        if job is None or job.stopping:
            return
        if job.phase == "training":
            job.stopping = fact
        else:
            self._release(job, fact.outcome, fact.reason, fact.attribution)

    def _reprioritised(self, fact: m.Reprioritised) -> None:
        job = self.jobs.get(fact.job)
        if job is None:
            return
        job.priority = fact.priority
        if job.phase == "queued":
            self.admission.reorder(job)
        else:
            self.pipeline.reorder(job)

    # Facts: a step

    def _rollout_done(self, fact: m.RolloutDone) -> None:
        job = self.jobs.get(fact.job)
        if job is None or not job.is_at("rollout", fact.version, fact.attempt):
            return
        self._leave_rollout(job, fact.tokens)
        job.observe_rollout(fact.at - job.since)
        self.pace.observe_rollout(fact.at - job.since)
        self._make_ready(job)

    def _rollout_failed(self, fact: m.RolloutFailed) -> None:
        job = self.jobs.get(fact.job)
        if job is None or not job.is_at("rollout", fact.version, fact.attempt):
            return
        self._leave_rollout(job)
        self.admission.end_step(job)
        if self._fail(job, fact.reason, fact.attribution):
            return
        if job.pausing:
            self._vacate(job)
            self._hold(job)
        else:
            self._make_idle(job)

    def _load_failed(self, fact: m.LoadFailed) -> None:
        self._rollout_failed(
            m.RolloutFailed(
                at=fact.at, job=fact.job, version=fact.version, attempt=fact.attempt, reason=fact.reason, attribution="platform"
            )
        )

    def _trained(self, fact: m.Trained) -> None:
        job = self.jobs.get(fact.job)
        if job is not None and job.at_trainer and job.is_at("training", fact.version, fact.attempt):
            self._leave_trainer(job, fact.at)

    def _train_done(self, fact: m.TrainDone) -> None:
        job = self.jobs.get(fact.job)
        if job is None or not job.is_at("training", fact.version, fact.attempt):
            return
        if job.at_trainer:
            self._leave_trainer(job, fact.at)
        self.pipeline.training_ended(job)
        self._observe_step(job, fact.at)
        job.version += 1
        job.attempt = job.failures = 0
        job.batch_ready = False
        self.pipeline.leave(job)
        self.admission.end_step(job)
        job.phase = "idle"
        if job.stopping:
            self._release(job, job.stopping.outcome, job.stopping.reason, job.stopping.attribution)
            return
        job.evals.committed(job.version)
        if job.finished:
            self._vacate(job)
            self._wind_up(job)
            return
        self._evaluate(job)
        if job.pausing:
            self._vacate(job)
            self._hold(job)
        else:
            self._make_idle(job)

    def _train_failed(self, fact: m.TrainFailed) -> None:
        job = self.jobs.get(fact.job)
        if job is None or not job.is_at("training", fact.version, fact.attempt):
            return
        self.pipeline.training_ended(job)
        job.phase = "idle"
        if job.stopping:
            self._release(job, job.stopping.outcome, job.stopping.reason, job.stopping.attribution)
        elif not self._fail(job, fact.reason, fact.attribution):
            self._make_ready(job)

    def _worker_lost(self, fact: m.WorkerLost) -> None:
        for lost in fact.lost:
            what = {"job": lost.job, "version": lost.version, "attempt": lost.attempt}
            failure = {"at": fact.at, **what, "reason": fact.reason, "attribution": "platform"}
            self._rollout_failed(m.RolloutFailed(**failure))
            self._train_failed(m.TrainFailed(**failure))

    def _eval_done(self, fact: m.EvalDone) -> None:
        job = self.jobs.get(fact.job)
        if job is None or not job.evals.ended(fact.version):
            return
        if job.phase == "evaluating":
            self._wind_up(job)
        elif job.phase not in ("queued", "held"):
            self._evaluate(job)

    # Facts: the house

    def _admission_changed(self, fact: m.AdmissionChanged) -> None:
        self.admission.mode = fact.mode
        self.pipeline.draining = fact.mode == "drain"

    def _policy_changed(self, fact: m.PolicyChanged) -> None:
        self.policy = fact.policy
        jobs = list(self.jobs.values())
        self.admission.change(fact.policy, jobs)
        self.pipeline.change(fact.policy, jobs)

    def _kv_sample(self, fact: m.KvSample) -> None:
        pipeline = self.pipeline
        if pipeline.concurrency is not None:
            numbers = {"used": fact.used, "waiting": fact.waiting, "preempted": fact.preempted}
            pipeline.concurrency.observe(at=fact.at, rolling=pipeline.rolling, **numbers)

    # Moves of one job

    def _settle(self, job: JobRecord) -> None:
        """It has just got a place."""
        self._evaluate(job)
        if job.batch_ready:
            self._make_ready(job)
        else:
            self._make_idle(job)

    def _make_idle(self, job: JobRecord) -> None:
        job.phase = "idle"
        self.admission.wants_rollout(job)
        self.pipeline.want_rollout(job)

    def _make_ready(self, job: JobRecord) -> None:
        job.phase = "ready"
        job.batch_ready = True
        self.admission.keep_for_step(job)
        self.pipeline.want_training(job)

    def _leave_rollout(self, job: JobRecord, tokens: int | None = None) -> None:
        self.pipeline.rollout_ended(job)
        self.admission.end_rollout(job, tokens)
        job.phase = "idle"

    def _leave_trainer(self, job: JobRecord, at: float) -> None:
        self.pipeline.left_trainer(job)
        job.observe_train(at - job.since)
        self.pace.observe_train(at - job.since)

    def _observe_step(self, job: JobRecord, at: float) -> None:
        if job.committed_at is not None:
            job.observe_step(at - job.committed_at)
            self.pace.observe_step(at - job.committed_at)
        elif job.step_since is not None:  # None: a restart brought its batch back
            job.guess_step(at - job.step_since)
            self.pace.guess_step(at - job.step_since)
        job.committed_at, job.step_since = at, None

    def _share_changed(self, tenant: str) -> None:
        if self.policy.admission_order == "fair":
            self.admission.queue.touch(tenant)
            self.pipeline.rollouts.touch(tenant)

    def _evaluate(self, job: JobRecord) -> None:
        version = job.evals.start()
        if version is not None:
            self._out.append(m.StartEval(job=job.job, version=version))

    def _wind_up(self, job: JobRecord) -> None:
        """Every version is committed: what is still to be evaluated, then the end. Its place is already free."""
        job.phase = "evaluating"
        self._evaluate(job)
        if job.evals.idle():
            self._release(job, "succeeded", f"all {job.steps} steps are committed", "user")

    def _fail(self, job: JobRecord, reason: str, attribution: m.Attribution) -> bool:
        """Count a failure of the step; end the job (True) if it is not the platform's or was the last that the policy bears."""
        job.failures += 1
        if attribution != "platform":
            self._release(job, "failed", reason, attribution)
        elif job.failures >= self.policy.max_attempts:
            self._release(job, "failed", f"given up after {job.failures} attempts at step {job.version + 1}: {reason}", "platform")
        else:
            return False
        return True

    def _hold(self, job: JobRecord) -> None:
        """It has no place (any more) and wants none until it is resumed."""
        job.phase = "held"
        job.pausing = False
        job.committed_at = job.step_since = None  # a pause is no pace
        self._out.append(m.Hold(job=job.job))

    def _vacate(self, job: JobRecord) -> None:
        """Leave every line and give the place back, if it has one."""
        if job.phase == "queued":
            self.admission.withdraw(job)
            return
        self.pipeline.leave(job)
        self.admission.give_back(job)

    def _release(self, job: JobRecord, outcome: m.Outcome, reason: str, attribution: m.Attribution) -> None:
        if job.phase == "rollout" or job.evals.outstanding is not None:
            self._out.append(m.Abort(job=job.job))
        if job.phase == "rollout":
            self._leave_rollout(job)
        if job.phase not in ("held", "evaluating"):
            self._vacate(job)
        del self.jobs[job.job]
        self._out.append(m.Release(job=job.job, outcome=outcome, reason=reason, attribution=attribution))

    # Who is next

    def _dispatch(self) -> None:
        per_step = self.policy.slot_hold == "step"
        if not per_step:
            self._admit()
        self.pipeline.open_round()
        self._start_trainings()
        if per_step:
            self._take_turns()
            self._start_trainings()  # of batches that a restart has brought back to those who took a turn just now
        else:
            self._start_rollouts()
        self._prepare_training()

    def _admit(self) -> None:
        while (name := self.admission.next()) is not None:
            job = self.jobs[name]
            if not self.admission.take(job):
                return
            self._out.append(m.Admit(job=name))
            self._settle(job)

    def _start_trainings(self) -> None:
        while (name := self.pipeline.next_training()) is not None:
            job = self.jobs[name]
            job.phase, job.since = "training", self.at
            self.pipeline.training_began(job)
            self._out.append(m.StartTrain(job=name, version=job.version, attempt=job.attempt))

    def _prepare_training(self) -> None:
        if (name := self.pipeline.next_when_free()) is None:
            return
        job = self.jobs[name]
        prepare = m.PrepareTrain(job=name, version=job.version, attempt=job.attempt)
        if prepare != self._prepared:
            self._prepared = prepare
            self._out.append(prepare)

    def _start_rollouts(self) -> None:
        while (name := self.pipeline.next_rollout()) is not None:
            job = self.jobs[name]
            if not self.admission.has_room(job):
                return
            self._roll_out(job)

    def _take_turns(self) -> None:
        """Slots are held per step: jobs in the queue and admitted ones stand in one order, and its first takes the place that is free."""
        while (job := self._first_in_turn()) is not None:
            if not self.admission.has_room(job):
                return
            if job.phase == "idle":
                self._roll_out(job)
            else:
                self.admission.take(job)
                self._out.append(m.Admit(job=job.job))
                self._settle(job)  # so that it is the first of the admitted, with the same key

    def _first_in_turn(self) -> JobRecord | None:
        if not self.pipeline.may_roll_out():
            return None
        rollouts, queue = self.pipeline.rollouts, self.admission.queue
        inside = rollouts.first_place()
        outside = queue.first_place() if self.admission.mode == "open" else None
        if inside is None and outside is None:
            return None
        name = rollouts.first() if outside is None or (inside is not None and inside <= outside) else queue.first()
        return None if self.pipeline.must_wait_alone(name) else self.jobs[name]

    def _roll_out(self, job: JobRecord) -> None:
        job.phase, job.since = "rollout", self.at
        job.step_since = self.at if job.step_since is None else job.step_since
        job.attempt += 1
        self.pipeline.rollout_began(job)
        self.admission.begin_rollout(job)
        self._out.append(m.StartRollout(job=job.job, version=job.version, attempt=job.attempt))
