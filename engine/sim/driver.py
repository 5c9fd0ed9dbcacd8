"""Runs the real scheduler in virtual time. Like the manager it contains no decision: it does what it is told and reports what happened.

StartRollout ─▶ adapter load ─▶ each cohort: (prefill, decode ─▶ tool)* ─▶ judge, reward ─▶ all there: batch ready ─▶ RolloutDone
StartTrain   ─▶ trainer ─▶ Trained ─▶ commit ─▶ TrainDone
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.core import messages as m
from engine.core.policy import Policy
from engine.core.scheduler import Scheduler
from engine.sim.clock import VirtualClock
from engine.sim.devices import FluidSampler, FluidTrainer, Request
from engine.sim.report import JobHistory, Report, StepTimes
from engine.sim.speeds import Speeds
from engine.sim.workload import Cohort, SimJob

KV_SAMPLE_SECONDS = 0.5  # as the manager's default


class Stalled(RuntimeError):
    """Nothing happens any more although jobs are open."""


class Rollout:
    """One attempt at one step's rollout, while it goes on."""

    __slots__ = ("command", "left", "tokens")

    def __init__(self, command: m.StartRollout) -> None:
        self.command = command
        self.left = 0
        self.tokens = 0.0


class Simulation:
    """One run of ``jobs`` under ``policy`` on a machine of these ``speeds``."""

    def __init__(self, policy: Policy, jobs: Sequence[SimJob], speeds: Speeds) -> None:
        self.scheduler = Scheduler(policy)
        self.clock = VirtualClock()
        self.speeds = speeds
        self.costs = speeds.overheads
        self.sampler = FluidSampler(self.clock, speeds)
        self.trainer = FluidTrainer(self.clock)
        self.sampler.meter.on_change = lambda busy: self.trainer.slow_down(self.costs.training_slowdown if busy else 1.0)
        self.trainer.meter.on_change = lambda busy: self.sampler.slow_down(self.costs.sampling_slowdown if busy else 1.0)
        self.jobs = {job.job: job for job in jobs}
        self.history = {job.job: JobHistory(submitted_at=job.submitted_at) for job in jobs}
        self.decisions = 0
        self._rollouts: dict[str, Rollout] = {}
        self._trained_tokens: dict[str, float] = {}
        self._prepared: tuple[str, float] | None = None  # whose training, and since when
        self._idle_at = {job.job: job.submitted_at for job in jobs}
        self._do: dict[type[m.Command], Callable[[Any], None]] = {
            m.StartRollout: self._start_rollout,
            m.PrepareTrain: self._prepare_train,
            m.StartTrain: self._start_train,
            m.StartEval: self._start_eval,
            m.Release: self._release,
            m.Abort: self._abort,
        }

    def run(self) -> Report:
        """Play to the end. Raises ``Stalled`` if some job never ends."""
        for job in self.jobs.values():
            at = job.submitted_at + self.costs.job_start_seconds
            self.clock.call_at(at, partial(self.tell, job.submission(at)))
        if self.scheduler.policy.adaptive is not None:
            self.clock.call_in(KV_SAMPLE_SECONDS, self._sample)
        while self.clock.step():
            pass
        if self.scheduler.jobs:
            raise Stalled(f"{len(self.scheduler.jobs)} jobs never end: {sorted(self.scheduler.jobs)[:5]}")
        return Report.of(
            histories=self.history,
            sampler=self.sampler.meter,
            trainer=self.trainer.meter,
            one_at_a_time=self.scheduler.policy.max_active == 1,
            sampled_tokens=sum(history.tokens for history in self.history.values()),
        )

    def tell(self, fact: m.Fact) -> None:
        """Let the scheduler hear ``fact`` now, and do what it says. A scenario may set an alarm on ``clock`` that tells of a stop."""
        self.decisions += 1
        for command in self.scheduler.handle(fact):
            do = self._do.get(type(command))
            if do is not None:
                do(command)

    # Rollout

    def _start_rollout(self, command: m.StartRollout) -> None:
        rollout = self._rollouts[command.job] = Rollout(command)
        self.history[command.job].steps.append(StepTimes(idle_at=self._idle_at[command.job], started_at=self.clock.now))
        self._after(self.costs.rollout_start_seconds, partial(self._load, rollout))

    def _load(self, rollout: Rollout) -> None:
        if self._goes_on(rollout):
            self.sampler.stall(self.costs.adapter_load_seconds, partial(self._play, rollout))

    def _play(self, rollout: Rollout) -> None:
        if not self._goes_on(rollout):
            return
        command = rollout.command
        cohorts = self.jobs[command.job].cohorts(command.version, command.attempt)
        rollout.left = len(cohorts)
        rollout.tokens = sum(cohort.sequences * cohort.tokens for cohort in cohorts)
        self._after(self.costs.seconds_per_request_batch, partial(self._ask, rollout, cohorts, 0))

    def _ask(self, rollout: Rollout, cohorts: list[Cohort], turn: int) -> None:
        if self._goes_on(rollout):
            self.sampler.submit([self._request(rollout, cohort, turn) for cohort in cohorts])

    def _request(self, rollout: Rollout, cohort: Cohort, turn: int) -> Request:
        now, sequences = cohort.turns[turn], cohort.sequences
        begin = self.speeds.prefill_seconds(sequences * now.prefill_tokens) + sequences * self.costs.seconds_per_request
        done = partial(self._sampled, rollout, cohort, turn)
        return Request(rollout.command.job, sequences, now.context_tokens, now.new_tokens, begin, done)

    def _sampled(self, rollout: Rollout, cohort: Cohort, turn: int) -> None:
        wait = cohort.turns[turn].wait_seconds
        if turn + 1 < len(cohort.turns):
            self._after(wait + self.costs.seconds_per_request_batch, partial(self._ask, rollout, [cohort], turn + 1))
        else:
            self._after(wait + self.costs.grade_seconds, partial(self._graded, rollout, cohort))

    def _graded(self, rollout: Rollout, cohort: Cohort) -> None:
        if not self._goes_on(rollout):
            return
        rollout.left -= 1
        self.history[rollout.command.job].tokens += cohort.sequences * cohort.sampled_tokens
        if not rollout.left:
            self._after(self.costs.batch_ready_seconds, partial(self._rolled_out, rollout))

    def _rolled_out(self, rollout: Rollout) -> None:
        if not self._goes_on(rollout):
            return
        command = rollout.command
        del self._rollouts[command.job]
        tokens = self._trained_tokens[command.job] = rollout.tokens
        self.history[command.job].steps[-1].rolled_out_at = self.clock.now
        numbers = {"job": command.job, "version": command.version, "attempt": command.attempt}
        self.tell(m.RolloutDone(at=self.clock.now, **numbers, tokens=round(tokens)))

    def _goes_on(self, rollout: Rollout) -> bool:
        return self._rollouts.get(rollout.command.job) is rollout

    def _abort(self, command: m.Abort) -> None:
        self._rollouts.pop(command.job, None)
        self.sampler.abort(command.job)

    # Training

    def _prepare_train(self, command: m.PrepareTrain) -> None:
        self._prepared = command.job, self.clock.now

    def _start_train(self, command: m.StartTrain) -> None:
        self.history[command.job].steps[-1].train_at = self.clock.now
        seconds = self.speeds.train_seconds(self._trained_tokens[command.job])
        self._after(self._start_seconds(command.job), lambda: self.trainer.train(seconds, partial(self._trained, command)))

    def _start_seconds(self, job: str) -> float:
        """What is left to do before its training; some of it was done while it waited."""
        since = self._prepared[1] if self._prepared is not None and self._prepared[0] == job else self.clock.now
        return max(0.0, self.costs.train_start_seconds - (self.clock.now - since))

    def _trained(self, command: m.StartTrain) -> None:
        self.tell(m.Trained(at=self.clock.now, job=command.job, version=command.version, attempt=command.attempt))
        self._after(self.costs.commit_seconds, partial(self._committed, command))

    def _committed(self, command: m.StartTrain) -> None:
        self.history[command.job].steps[-1].committed_at = self._idle_at[command.job] = self.clock.now
        self.tell(m.TrainDone(at=self.clock.now, job=command.job, version=command.version, attempt=command.attempt))

    # The rest

    def _sample(self) -> None:
        """As ``engine.kv_samples``. Preemptions are none: this sampler lets in only what fits to its end."""
        if self._rollouts:
            self.tell(m.KvSample(at=self.clock.now, used=self.sampler.kv_used, waiting=self.sampler.waiting, preempted=0))
        if any(history.ended_at is None for history in self.history.values()):
            self.clock.call_in(KV_SAMPLE_SECONDS, self._sample)

    def _start_eval(self, command: m.StartEval) -> None:
        at = self.clock.now + self.jobs[command.job].eval_seconds
        self.clock.call_at(at, partial(self.tell, m.EvalDone(at=at, job=command.job, version=command.version)))

    def _release(self, command: m.Release) -> None:
        self.history[command.job].ended_at = self.clock.now + self.costs.job_end_seconds

    def _after(self, seconds: float, action: Callable[[], object]) -> None:
        """``action`` in ``seconds``, at once if in none: most overheads of most machines are zero, and an alarm costs more than a call."""
        if seconds > 0:
            self.clock.call_in(seconds, action)
        else:
            action()


def simulate(policy: Policy, jobs: Sequence[SimJob], speeds: Speeds) -> Report:
    return Simulation(policy, jobs, speeds).run()
