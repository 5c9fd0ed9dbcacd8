"""Runs the real scheduler in virtual time. Like the manager it contains no decision: it does what it is told and reports what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.core import messages as m
from engine.core.policy import Policy
from engine.core.scheduler import Scheduler
from engine.sim.clock import VirtualClock
from engine.sim.devices import BusyMeter, SharedSampler
from engine.sim.report import JobHistory, Report
from engine.sim.workload import SimJob


class Stalled(RuntimeError):
    """Nothing happens any more although jobs are open."""


class Simulation:
    """One run of ``jobs`` under ``policy``. Durations come from the jobs; switching, loading and committing cost nothing."""

    def __init__(self, policy: Policy, jobs: Sequence[SimJob], *, contention: float = 0.0) -> None:
        self.scheduler = Scheduler(policy)
        self.clock = VirtualClock()
        self.sampler = SharedSampler(self.clock, contention)
        self.trainer = BusyMeter()
        self.jobs = {job.job: job for job in jobs}
        self.history = {job.job: JobHistory(submitted_at=job.submitted_at) for job in jobs}
        self.decisions = 0
        self._do: dict[type[m.Command], Callable[[Any], None]] = {
            m.StartRollout: self._start_rollout,
            m.StartTrain: self._start_train,
            m.StartEval: self._start_eval,
            m.Release: self._release,
            m.Abort: lambda command: self.sampler.abort(command.job),
        }

    def run(self) -> Report:
        """Play to the end. Raises ``Stalled`` if some job never ends."""
        for job in self.jobs.values():
            self.clock.call_at(job.submitted_at, partial(self.tell, job.submission()))
        while self.clock.step():
            pass
        if self.scheduler.jobs:
            raise Stalled(f"{len(self.scheduler.jobs)} jobs never end: {sorted(self.scheduler.jobs)[:5]}")
        return Report.of(
            histories=self.history, sampler=self.sampler.meter, trainer=self.trainer, one_at_a_time=self.scheduler.policy.max_active == 1
        )

    def tell(self, fact: m.Fact) -> None:
        """Let the scheduler hear ``fact`` now, and do what it says. A scenario may set an alarm on ``clock`` that tells of a stop."""
        self.decisions += 1
        for command in self.scheduler.handle(fact):
            do = self._do.get(type(command))
            if do is not None:
                do(command)

    def _start_rollout(self, command: m.StartRollout) -> None:
        times = self.jobs[command.job].times(command.version, command.attempt)
        graded = partial(self._rolled_out, command)
        self.sampler.begin(command.job, times.decode_seconds, lambda: self.clock.call_in(times.env_seconds, graded))

    def _rolled_out(self, command: m.StartRollout) -> None:
        self.tell(m.RolloutDone(at=self.clock.now, job=command.job, version=command.version, attempt=command.attempt))

    def _start_train(self, command: m.StartTrain) -> None:
        times = self.jobs[command.job].times(command.version, command.attempt)
        self.trainer.began(self.clock.now)
        self.clock.call_in(times.train_seconds, partial(self._commit, command))

    def _commit(self, command: m.StartTrain) -> None:
        self.trainer.ended(self.clock.now)
        self.history[command.job].commits.append(self.clock.now)
        self.tell(m.TrainDone(at=self.clock.now, job=command.job, version=command.version, attempt=command.attempt))

    def _start_eval(self, command: m.StartEval) -> None:
        at = self.clock.now + self.jobs[command.job].eval_seconds
        self.clock.call_at(at, partial(self.tell, m.EvalDone(at=at, job=command.job, version=command.version)))

    def _release(self, command: m.Release) -> None:
        self.history[command.job].ended_at = self.clock.now


def simulate(policy: Policy, jobs: Sequence[SimJob], *, contention: float = 0.0) -> Report:
    return Simulation(policy, jobs, contention=contention).run()
