"""The scheduler: facts in, commands out. Pure: no clock, no I/O, no randomness.

    Submitted ─▶ queued ─Admit─▶ idle ─StartRollout─▶ rollout ─RolloutDone─▶ ready ─StartTrain─▶ training ─TrainDone─┐
                   ▲              ▲ ▲                    │ RolloutFailed        ▲                   │ TrainFailed     │
                   │              │ └────────────────────┘                      └───────────────────┘                 │
                 held ◀───Hold────┼──────────────── version + 1, and again until the last ───────────────────────────┤
                                  └───────────────────────────────────────────────────────────────────────────────────┤
                                                                            Release ◀── evaluating (if still due) ◀────┘

Each fact moves one job; then ``_dispatch`` hands free places, trainer slots and rollout permits to the first in each line. Work per fact
does not grow with the number of jobs. A fact about an unknown job, an older version or another attempt changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.core.admission import Admission
from engine.core.job import JobRecord
from engine.core.line import Line
from engine.core.messages import (
    Abort,
    AdmissionChanged,
    Admit,
    Command,
    EvalDone,
    Fact,
    Hold,
    KvSample,
    LoadFailed,
    Paused,
    PolicyChanged,
    Release,
    Reprioritised,
    Resumed,
    RolloutDone,
    RolloutFailed,
    StartEval,
    StartRollout,
    StartTrain,
    Stopped,
    Submitted,
    Tick,
    TrainDone,
    TrainFailed,
)
from engine.core.policy import Policy
from engine.core.rounds import Rounds
from engine.core.view import JobView, explain_all


class Scheduler:
    """Decides what every job does next. One instance, one thread; drivers are ``engine.manager`` and ``engine.sim``."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.jobs: dict[str, JobRecord] = {}
        self.admission = Admission(policy)
        self.rollouts = Line()  # idle jobs that may roll out as soon as there is room
        self.ready = Line()  # jobs whose batch waits for the trainer
        self.rounds = Rounds()
        self.rolling = 0
        self.training = 0
        self._orders = 0
        self._turns = 0
        self._out: list[Command] = []
        self._handlers: dict[type[Fact], Callable[[Any], None]] = {
            Submitted: self._submitted,
            RolloutDone: self._rollout_done,
            RolloutFailed: self._rollout_failed,
            LoadFailed: self._load_failed,
            TrainDone: self._train_done,
            TrainFailed: self._train_failed,
            EvalDone: self._eval_done,
            Paused: self._paused,
            Resumed: self._resumed,
            Stopped: self._stopped,
            Reprioritised: self._reprioritised,
            PolicyChanged: self._policy_changed,
            AdmissionChanged: self._admission_changed,
            KvSample: lambda fact: None,
            Tick: lambda fact: None,
        }

    def handle(self, fact: Fact) -> list[Command]:
        """Take one fact in; return what is to be done now, in this order. Raises ``KeyError`` for a fact of an unknown type."""
        self._out = []
        self._handlers[type(fact)](fact)
        self._dispatch()
        return self._out

    def view(self) -> dict[str, JobView]:
        """Where every open job stands and what it waits for. O(n log n): for people, not for decisions."""
        return explain_all(self)

    # Facts: the queue

    def _submitted(self, fact: Submitted) -> None:
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

    def _paused(self, fact: Paused) -> None:
        job = self.jobs.get(fact.job)
        if job is None or job.stopping or job.phase in ("held", "evaluating"):
            return
        if job.phase in ("queued", "idle"):
            self._vacate(job)
            self._hold(job)
        else:
            job.pausing = True

    def _resumed(self, fact: Resumed) -> None:
        job = self.jobs.get(fact.job)
        if job is None:
            return
        job.pausing = False
        if job.phase == "held":
            job.phase = "queued"
            self.admission.enqueue(job)

    def _stopped(self, fact: Stopped) -> None:
        job = self.jobs.get(fact.job)
        if job is None or job.stopping:
            return
        if job.phase == "training":
            job.stopping = fact
        else:
            self._release(job, fact.outcome, fact.reason, fact.attribution)

    def _reprioritised(self, fact: Reprioritised) -> None:
        job = self.jobs.get(fact.job)
        if job is None:
            return
        job.priority = fact.priority
        if job.phase == "queued":
            self.admission.reorder(job)
        elif job.phase == "ready":
            self.ready.add(job.job, self._train_key(job))

    # Facts: a step

    def _rollout_done(self, fact: RolloutDone) -> None:
        job = self.jobs.get(fact.job)
        if job is None or not job.is_at("rollout", fact.version, fact.attempt):
            return
        self._leave_rollout(job)
        self._make_ready(job)

    def _rollout_failed(self, fact: RolloutFailed) -> None:
        job = self.jobs.get(fact.job)
        if job is None or not job.is_at("rollout", fact.version, fact.attempt):
            return
        self._leave_rollout(job)
        if self._fail(job, fact.reason, fact.attribution):
            return
        if job.pausing:
            self._vacate(job)
            self._hold(job)
        else:
            self._make_idle(job)

    def _load_failed(self, fact: LoadFailed) -> None:
        self._rollout_failed(
            RolloutFailed(at=fact.at, job=fact.job, version=fact.version, attempt=fact.attempt, reason=fact.reason, attribution="platform")
        )

    def _train_done(self, fact: TrainDone) -> None:
        job = self.jobs.get(fact.job)
        if job is None or not job.is_at("training", fact.version, fact.attempt):
            return
        self.training -= 1
        job.version += 1
        job.attempt = job.failures = 0
        job.batch_ready = False
        self.rounds.leave(job.job)
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

    def _train_failed(self, fact: TrainFailed) -> None:
        job = self.jobs.get(fact.job)
        if job is None or not job.is_at("training", fact.version, fact.attempt):
            return
        self.training -= 1
        job.phase = "idle"
        if job.stopping:
            self._release(job, job.stopping.outcome, job.stopping.reason, job.stopping.attribution)
        elif not self._fail(job, fact.reason, fact.attribution):
            self._make_ready(job)

    def _eval_done(self, fact: EvalDone) -> None:
        job = self.jobs.get(fact.job)
        if job is None or not job.evals.ended(fact.version):
            return
        if job.phase == "evaluating":
            self._wind_up(job)
        elif job.phase not in ("queued", "held"):
            self._evaluate(job)

    # Facts: the house

    def _admission_changed(self, fact: AdmissionChanged) -> None:
        self.admission.mode = fact.mode

    def _policy_changed(self, fact: PolicyChanged) -> None:
        had_barrier, self.policy = self.policy.barrier, fact.policy
        jobs = list(self.jobs.values())
        self.admission.change(fact.policy, jobs)
        for job in jobs:
            if job.phase == "ready":
                self.ready.add(job.job, self._train_key(job))
        if not fact.policy.barrier:
            for name in self.rounds.disband():
                self._line_up(self.jobs[name])
        elif not had_barrier:
            self.rounds.join(job.job for job in jobs if job.phase in ("idle", "rollout", "ready", "training"))

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
        if self.policy.barrier and self.rounds.is_joinable():
            self.rounds.join((job.job,))
        if self.policy.barrier and job.job not in self.rounds:
            self.rounds.wait(job.job)
        else:
            self._line_up(job)

    def _line_up(self, job: JobRecord) -> None:
        job.turn = self._next_turn()
        self.rollouts.add(job.job, (job.turn,))

    def _make_ready(self, job: JobRecord) -> None:
        job.phase = "ready"
        job.batch_ready = True
        job.turn = self._next_turn()
        if self.policy.barrier:
            self.rounds.join((job.job,))
        self.ready.add(job.job, self._train_key(job))

    def _leave_rollout(self, job: JobRecord) -> None:
        self.rolling -= 1
        if self.policy.kv_hold == "rollout":
            self.admission.kv.release(job.job)
        job.phase = "idle"

    def _evaluate(self, job: JobRecord) -> None:
        version = job.evals.start()
        if version is not None:
            self._out.append(StartEval(job=job.job, version=version))

    def _wind_up(self, job: JobRecord) -> None:
        """Every version is committed: what is still to be evaluated, then the end. Its place is already free."""
        job.phase = "evaluating"
        self._evaluate(job)
        if job.evals.idle():
            self._release(job, "succeeded", f"all {job.steps} steps are committed", "user")

    def _fail(self, job: JobRecord, reason: str, attribution: str) -> bool:
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
        self._out.append(Hold(job=job.job))

    def _vacate(self, job: JobRecord) -> None:
        """Leave every line and give the place back, if it has one."""
        if job.phase == "queued":
            self.admission.withdraw(job)
            return
        self.rollouts.discard(job.job)
        self.ready.discard(job.job)
        self.rounds.leave(job.job)
        self.admission.give_back(job)

    def _release(self, job: JobRecord, outcome: str, reason: str, attribution: str) -> None:
        if job.phase == "rollout" or job.evals.outstanding is not None:
            self._out.append(Abort(job=job.job))
        if job.phase == "rollout":
            self._leave_rollout(job)
        if job.phase not in ("held", "evaluating"):
            self._vacate(job)
        del self.jobs[job.job]
        self._out.append(Release(job=job.job, outcome=outcome, reason=reason, attribution=attribution))

    # Who is next

    def _dispatch(self) -> None:
        self._admit()
        if self.policy.barrier and self.rounds.over():
            for name in self.rounds.open():
                self._line_up(self.jobs[name])
        self._start_trainings()
        self._start_rollouts()

    def _admit(self) -> None:
        while (name := self.admission.next()) is not None:
            job = self.jobs[name]
            if not self.admission.take(job):
                return
            self._out.append(Admit(job=name))
            self._settle(job)

    def _start_trainings(self) -> None:
        while self.training < self.policy.train_slots and self.may_train() and (name := self.ready.first()) is not None:
            job = self.jobs[name]
            self.ready.discard(name)
            job.phase = "training"
            self.training += 1
            self.rounds.training_began()
            self._out.append(StartTrain(job=name, version=job.version, attempt=job.attempt))

    def _start_rollouts(self) -> None:
        while self.may_roll_out() and (name := self.rollouts.first()) is not None:
            job = self.jobs[name]
            if self.policy.kv_hold == "rollout" and not self.admission.kv.reserve(name, job.kv_bytes):
                return
            self.rollouts.discard(name)
            job.phase = "rollout"
            job.attempt += 1
            self.rolling += 1
            self.admission.served(job)
            self._out.append(StartRollout(job=name, version=job.version, attempt=job.attempt))

    def may_train(self) -> bool:
        """Whether the regime allows a training to start now, trainer slots aside."""
        if self.policy.collocated and self.rolling:
            return False
        return self._round_is_in()

    def may_roll_out(self) -> bool:
        """Whether the regime allows a rollout to start now, KV aside."""
        if self.admission.mode == "drain":
            return False
        if self.policy.max_rollouts is not None and self.rolling >= self.policy.max_rollouts:
            return False
        return not (self.policy.collocated and (self.training or (len(self.ready) and self._round_is_in())))

    def _round_is_in(self) -> bool:
        """Whether no barrier keeps ready batches from the trainer: every batch of the round is there, or no more will come."""
        return not self.policy.barrier or self.admission.mode == "drain" or self.rounds.all_in(len(self.ready) + self.training)

    def _train_key(self, job: JobRecord) -> tuple[float, ...]:
        return (-job.priority, job.turn) if self.policy.train_order == "priority" else (job.turn,)

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns
