"""A random world around the scheduler: it answers late, twice, wrongly or not at all, pauses, cancels, crashes and restarts.

``Ledger`` believes nothing that the scheduler says: it keeps its own books from the commands and raises ``Broken`` at the first one
that breaks a rule. ``Storm`` draws the facts from a seeded ``random.Random``, so a failing seed replays exactly.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from engine.core import messages as m
from engine.core.policy import REGIMES, Policy
from engine.core.scheduler import Scheduler


class Broken(AssertionError):
    """A command broke a rule."""


@dataclass(kw_only=True, slots=True)
class Durable:
    """What a journal would know of one job, plus what is under way right now (lost in a crash)."""

    first: m.Submitted
    version: int = 0
    attempt: int = 0
    ready: int | None = None
    failures: int = 0
    evaluated: int = -1
    admitted: bool = False
    paused: bool = False
    held: bool = False
    stop: m.Stopped | None = None
    rollout: int | None = None
    training: bool = False  # until it is committed
    at_trainer: bool = False
    evaluating: int | None = None


@dataclass(kw_only=True)
class Ledger:
    policy: Policy
    mode: str = "open"
    limit: int | None = None  # jobs in rollout, where the policy is adaptive
    restoring: bool = False  # batches that are yet to come back will need no sampler, but a slot
    calm: bool = True  # no change of policy and no drain so far: the barrier's rules hold without exception
    jobs: dict[str, Durable] = field(default_factory=dict)
    ended: dict[str, m.Release] = field(default_factory=dict)
    trained: set[tuple[str, int]] = field(default_factory=set)

    def need(self, holds: bool, rule: str, command: m.Command) -> None:
        if not holds:
            raise Broken(f"{rule}: {command}")

    def follow(self, command: m.Command) -> None:
        self.need(command.job not in self.ended, "a released job hears no more commands", command)
        self.need(command.job in self.jobs, "commands name known jobs", command)
        job = self.jobs[command.job]
        getattr(self, f"_{type(command).__name__.lower()}")(job, command)

    def _admit(self, job: Durable, command: m.Admit) -> None:
        self.need(not job.admitted, "a job is admitted once", command)
        self.need(self.mode == "open", "only an open door admits", command)
        self.need(not job.paused, "a paused job is not admitted", command)
        job.admitted = True
        if self.policy.slot_hold == "life":
            self.need(self._places() <= self.policy.max_active, "never more admitted than slots", command)
        if self.policy.kv_hold == "life":
            self._check_kv([j for j in self.jobs.values() if j.admitted], command)
        tenant, caps = job.first.tenant, [j.first.running_cap for j in self.jobs.values() if j.first.tenant == job.first.tenant]
        running = sum(j.admitted for j in self.jobs.values() if j.first.tenant == tenant)
        self.need(None in caps or running <= max(caps), "never more of a tenant than its cap", command)

    def _startrollout(self, job: Durable, command: m.StartRollout) -> None:
        self.need(job.admitted and not job.held, "only admitted jobs roll out", command)
        self.need(command.version == job.version, "never a stale version", command)
        self.need(command.attempt == job.attempt + 1, "attempts count by one", command)
        self.need(job.rollout is None and job.ready is None and not job.training, "one outstanding batch per job", command)
        self.need(self.mode != "drain", "a drained engine starts no step", command)
        self.need(job.version < job.first.steps, "no step after the last", command)
        others = [j for j in self.jobs.values() if j.rollout is not None]
        self.need(not (self._at_last_chance(job) and others), "a last attempt rolls out alone", command)
        self.need(not any(map(self._at_last_chance, others)), "nobody rolls out beside a last attempt", command)
        job.rollout = job.attempt = command.attempt
        rolling = [j for j in self.jobs.values() if j.rollout is not None]
        self.need(len(rolling) <= (self.policy.max_rollouts or len(rolling)), "never more rollouts than allowed", command)
        self.need(self.limit is None or len(rolling) <= self.limit, "never more rollouts than the sampler's memory bears", command)
        if self.policy.slot_hold == "step" and not self.restoring:
            self.need(self._steps() <= self.policy.max_active, "never more steps than slots", command)
        if self.policy.kv_hold == "rollout":
            self._check_kv(rolling, command)
        self.need(not (self.policy.collocated and self._trainings()), "no rollout during training on the same device", command)
        uncommitted = any(j.training for j in self.jobs.values())
        self.need(not (self.policy.barrier and self.calm and uncommitted), "no round before the last one is committed", command)

    def _preparetrain(self, job: Durable, command: m.PrepareTrain) -> None:
        self.need(job.ready is not None and not job.training, "only a batch that waits is prepared", command)
        self.need((command.version, command.attempt) == (job.version, job.ready), "it is the batch that is ready", command)
        self.need(self._trainings() >= self.policy.train_slots, "nothing is prepared while a trainer is free", command)

    def _starttrain(self, job: Durable, command: m.StartTrain) -> None:
        self.need(job.admitted and not job.held, "only admitted jobs train", command)
        self.need(command.version == job.version, "never a stale version", command)
        self.need(job.ready is not None and command.attempt == job.ready, "it trains on the batch that is ready", command)
        self.need(not job.training, "one training per job", command)
        self.need((command.job, command.version) not in self.trained, "no step commits twice", command)
        job.training = job.at_trainer = True
        self.need(self._trainings() <= self.policy.train_slots, "one training at a time per slot", command)
        exclusive = self.policy.collocated or (self.policy.barrier and self.calm)
        rolling = any(j.rollout is not None for j in self.jobs.values())
        self.need(not (exclusive and rolling), "no training during rollouts where they exclude each other", command)

    def _starteval(self, job: Durable, command: m.StartEval) -> None:
        first = job.first
        due = (first.eval_ends and command.version in (0, first.steps)) or (first.eval_every and command.version % first.eval_every == 0)
        self.need(job.evaluating is None, "one evaluation per job", command)
        self.need(bool(due) and command.version <= job.version, "only due and committed versions are evaluated", command)
        job.evaluating = command.version

    def _abort(self, job: Durable, command: m.Abort) -> None:
        self.need(job.rollout is not None or job.evaluating is not None, "only what runs is aborted", command)
        job.rollout = job.evaluating = None

    def _hold(self, job: Durable, command: m.Hold) -> None:
        self.need(job.paused, "only a paused job is held", command)
        self.need(job.rollout is None and not job.training, "a job is held when it is quiet", command)
        job.held, job.admitted = True, False

    def _release(self, job: Durable, command: m.Release) -> None:
        self.need(job.rollout is None and job.evaluating is None, "nothing generates for a released job", command)
        self.need(not job.training, "a training that has started commits before the release", command)
        self.need(command.outcome != "succeeded" or job.version == job.first.steps, "only a whole job succeeds", command)
        self.ended[command.job] = command
        del self.jobs[command.job]

    def check_rest(self) -> None:
        """Rules about what the scheduler leaves undone."""
        busy = any(j.rollout is not None or j.training or j.evaluating is not None for j in self.jobs.values())
        waiting = [name for name, j in self.jobs.items() if not j.held]
        if self.mode == "open" and waiting and not busy:
            raise Broken(f"nothing runs although {waiting} could")
        if self.mode == "open" and self.policy.admission_order == "fifo" and self.policy.slot_hold == "life":
            self._check_door()
        if self.policy.barrier or self.policy.collocated or self.mode == "drain":
            return
        ready = [name for name, j in self.jobs.items() if j.ready is not None and not j.training and j.admitted]
        if ready and self._trainings() < self.policy.train_slots:
            raise Broken(f"the trainer idles although {ready} are ready")
        if self.policy.max_rollouts or self.policy.kv_hold == "rollout" or self.policy.adaptive:
            return
        if any(j.admitted and j.ready is None and not j.training and self._at_last_chance(j) for j in self.jobs.values()):
            return
        idle = [n for n, j in self.jobs.items() if j.admitted and j.rollout is None and j.ready is None and j.version < j.first.steps]
        if idle:
            raise Broken(f"{idle} idle although nothing holds them up")

    def _check_door(self) -> None:
        """First come, first served: with a slot free, the first whose tenant is below its cap must be kept out by KV alone."""
        inside = [j for j in self.jobs.values() if j.admitted]
        running = Counter(j.first.tenant for j in inside)
        waiting = (j for j in self.jobs.values() if not (j.admitted or j.held or j.version == j.first.steps))
        first = next((j for j in waiting if j.first.running_cap is None or running[j.first.tenant] < j.first.running_cap), None)
        if first is None or len(inside) >= self.policy.max_active:
            return
        budget, held = self._budget(), sum(j.first.kv_bytes for j in inside)
        if self.policy.kv_hold == "rollout" or budget is None or not inside or held + first.first.kv_bytes <= budget:
            raise Broken(f"{first.first.job} waits although there is room")

    def _at_last_chance(self, job: Durable) -> bool:
        return 0 < job.failures == self.policy.max_attempts - 1

    def _places(self) -> int:
        return sum(j.admitted for j in self.jobs.values())

    def _steps(self) -> int:
        return sum(j.rollout is not None or j.ready is not None or j.training for j in self.jobs.values() if j.admitted)

    def _budget(self) -> float | None:
        budget, adaptive = self.policy.kv_budget_bytes, self.policy.adaptive
        return budget if budget is None or adaptive is None else budget * adaptive.overcommit

    def _trainings(self) -> int:
        return sum(j.at_trainer for j in self.jobs.values())

    def _check_kv(self, holders: list[Durable], command: m.Command) -> None:
        budget, held = self._budget(), sum(j.first.kv_bytes for j in holders)
        self.need(budget is None or held <= budget or len(holders) == 1, "never more KV than the budget", command)


class Storm:
    """One random schedule. ``run`` raises ``Broken`` when a rule is."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ledger = Ledger(policy=self._policy())
        self.scheduler = Scheduler(self.ledger.policy)
        self.at = 0.0
        self.past: list[m.Fact] = []
        self.submitted = 0
        self.changes_policy = self.chance.random() < 0.3
        self.trouble = self.chance.choice([0.0, 0.1, 0.3])
        self.restarts = self.chance.random() < 0.5

    def run(self, facts: int) -> None:
        for _ in range(facts):
            self._anything()
        self._calm_down()

    def tell(self, fact: m.Fact) -> None:
        self.past.append(fact)
        commands = self.scheduler.handle(fact)
        concurrency = self.scheduler.pipeline.concurrency
        self.ledger.limit = None if concurrency is None else concurrency.limit
        for command in commands:
            self.ledger.follow(command)

    # Facts

    def _anything(self) -> None:
        self.at += self.chance.expovariate(1.0)
        draw = self.chance.random()
        if draw < 0.12 and self.submitted < 12:
            self._submit()
        elif draw < 0.80:
            self._answer(self.trouble)
        elif draw < 0.80 + self.trouble * 0.6:
            self._meddle()
        elif draw > 0.985 and self.restarts:
            self._restart()
        elif draw > 0.97 and self.changes_policy:
            self._change_policy()
        elif draw > 0.95:
            self._echo()
        if self.chance.random() < 0.1:
            self._sample()
        if self.chance.random() < 0.02:
            self._look()
        if self.chance.random() < 0.1 * self.trouble:
            self._lose_worker()
        self.ledger.check_rest()

    def _submit(self) -> None:
        number, self.submitted = self.submitted, self.submitted + 1
        tenant = self.chance.randrange(4)
        fact = m.Submitted(
            at=self.at,
            job=f"job{number}",
            tenant=f"t{tenant}",
            steps=self.chance.randint(1, 4),
            kv_bytes=self.chance.choice([1, 10, 30, 150]),
            weight=1.0 + tenant,
            step_tokens=self.chance.choice([None, 10, 1000]),
            running_cap=[None, 1, 2, 3][tenant],
            priority=self.chance.randint(-1, 1),
            eval_every=self.chance.choice([0, 0, 1, 2]),
            eval_ends=self.chance.random() < 0.4,
        )
        self.ledger.jobs[fact.job] = Durable(first=fact)
        self.tell(fact)

    def _answer(self, trouble: float) -> None:
        """Answer one outstanding command, well or badly."""
        work = [
            (name, kind)
            for name, j in self.ledger.jobs.items()
            for kind, on in (
                ("rollout", j.rollout is not None),
                ("trainer", j.at_trainer),
                ("train", j.training),
                ("eval", j.evaluating is not None),
            )
            if on
        ]
        if not work:
            return
        name, kind = self.chance.choice(work)
        fails = self.chance.random() < trouble
        getattr(self, f"_answer_{kind}")(name, self.ledger.jobs[name], fails)

    def _answer_rollout(self, name: str, job: Durable, fails: bool) -> None:
        key = {"at": self.at, "job": name, "version": job.version, "attempt": job.attempt}
        job.rollout = None
        job.failures += fails
        if not fails:
            job.ready = job.attempt
            self.tell(m.RolloutDone(**key, tokens=self.chance.choice([None, 0, 1, 100, 10_000])))
        elif self.chance.random() < 0.3:
            self.tell(m.LoadFailed(**key, reason="not the adapter"))
        else:
            self.tell(m.RolloutFailed(**key, reason="it broke", attribution=self._blame()))

    def _answer_trainer(self, name: str, job: Durable, fails: bool) -> None:
        """Its commit is still to come."""
        job.at_trainer = False
        self.tell(m.Trained(at=self.at, job=name, version=job.version, attempt=job.attempt))

    def _answer_train(self, name: str, job: Durable, fails: bool) -> None:
        key = {"at": self.at, "job": name, "version": job.version, "attempt": job.attempt}
        job.training = job.at_trainer = False
        job.failures += fails
        if fails:
            self.tell(m.TrainFailed(**key, reason="it broke", attribution=self._blame()))
        else:
            self._commit(name, job)
            self.tell(m.TrainDone(**key))

    def _answer_eval(self, name: str, job: Durable, fails: bool) -> None:
        version, job.evaluating = job.evaluating, None
        job.evaluated = max(job.evaluated, version)
        self.tell(m.EvalDone(at=self.at, job=name, version=version))

    def _lose_worker(self) -> None:
        """A sampler, or the trainer, dies with some or all that it ran; the facts name old attempts too."""
        dead = self.chance.choice(["rollout", "training"])
        lost = []
        for name, job in self.ledger.jobs.items():
            if (job.at_trainer if dead == "training" else job.rollout is not None) and self.chance.random() < 0.7:
                lost.append(m.Lost(job=name, version=job.version, attempt=job.attempt))
                job.rollout, job.training, job.at_trainer = None, False, False
                job.failures += 1
            elif job.attempt > 1 and not job.training:
                lost.append(m.Lost(job=name, version=job.version, attempt=job.attempt - 1))
        self.tell(m.WorkerLost(at=self.at, lost=tuple(lost), reason="its process died"))

    def _sample(self) -> None:
        reading = {"used": self.chance.random(), "waiting": self.chance.randint(0, 9), "preempted": self.chance.choice([0, 0, 0, 5])}
        self.tell(m.KvSample(at=self.at, **reading))

    def _look(self) -> None:
        """People look at any time; what they see is of this world."""
        views = self.scheduler.view(self.at + self.chance.random())
        if views.keys() != self.ledger.jobs.keys():
            raise Broken("the view shows other jobs than there are")
        for view in views.values():
            if view.admitted != self.ledger.jobs[view.job].admitted and view.version < view.steps:
                raise Broken(f"admitted or not: {view}")
            if min(view.next_seconds or 0.0, view.eta_seconds or 0.0) < 0:
                raise Broken(f"a forecast of the past: {view}")

    def _meddle(self) -> None:
        """A person pauses, resumes, cancels, reprioritises, or works the door."""
        act = self.chance.choice(["pause", "pause", "resume", "resume", "cancel", "priority", "door"])
        if act == "door":
            self._door(self.chance.choice(["open", "open", "paused", "drain"]))
            return
        if not self.ledger.jobs:
            return
        name = self.chance.choice(list(self.ledger.jobs))
        job = self.ledger.jobs[name]
        if act == "pause" and not job.stop and job.version < job.first.steps:
            job.paused = True
            self.tell(m.Paused(at=self.at, job=name))
        elif act == "resume":
            job.paused = job.held = False
            self.tell(m.Resumed(at=self.at, job=name))
        elif act == "cancel":
            stop = m.Stopped(at=self.at, job=name, outcome="cancelled", reason="asked to", attribution="user")
            job.stop = job.stop or stop
            self.tell(stop)
        elif act == "priority":
            job.first = replace(job.first, priority=self.chance.randint(-2, 2))
            self.tell(m.Reprioritised(at=self.at, job=name, priority=job.first.priority))

    def _door(self, mode: str) -> None:
        self.ledger.mode = mode
        self.ledger.calm = self.ledger.calm and mode != "drain"
        self.tell(m.AdmissionChanged(at=self.at, mode=mode))

    def _change_policy(self) -> None:
        self.ledger.calm = False
        self.ledger.policy = self._policy()
        self.tell(m.PolicyChanged(at=self.at, policy=self.ledger.policy))

    def _echo(self) -> None:
        """An old answer arrives again, late."""
        answers = (m.Submitted, m.RolloutDone, m.RolloutFailed, m.Trained, m.TrainDone, m.EvalDone, m.LoadFailed)
        old = [f for f in self.past[-40:] if isinstance(f, answers) and not self._is_current(f)]
        if old:
            self.tell(self.chance.choice(old))

    def _is_current(self, fact: m.Fact) -> bool:
        job = self.ledger.jobs.get(fact.job)
        if isinstance(fact, m.Submitted):
            return job is None
        if job is None or isinstance(fact, m.EvalDone):
            return job is not None and job.evaluating == fact.version
        current = (fact.version, fact.attempt) == (job.version, job.attempt)
        return current and (job.at_trainer or not isinstance(fact, m.Trained))

    def _restart(self) -> None:
        """The manager dies and a new one starts from the journal; a commit may have made it to disk just before."""
        for name, job in list(self.ledger.jobs.items()):
            if job.training and self.chance.random() < 0.5:
                self._commit(name, job)
            job.rollout = job.evaluating = None
            job.training = job.at_trainer = job.held = False
            job.failures = 0
        self.scheduler = Scheduler(self.ledger.policy)
        mode, self.ledger.mode = self.ledger.mode, "paused"
        self.tell(m.AdmissionChanged(at=self.at, mode="paused"))
        if mode == "drain":
            self._door("drain")
        self.ledger.restoring = True
        for name, job in list(self.ledger.jobs.items()):
            self._restore(name, job)
        self.ledger.restoring = False
        self.ledger.mode = mode
        self.tell(m.AdmissionChanged(at=self.at, mode=mode))

    def _restore(self, name: str, job: Durable) -> None:
        now = {"version": job.version, "attempt": job.attempt, "ready_attempt": job.ready, "last_evaluated": job.evaluated}
        self.tell(replace(job.first, at=self.at, admitted=job.admitted, paused=job.paused, **now))
        if name in self.ledger.jobs:
            view = self.scheduler.view()[name]
            job.admitted = view.admitted
            if job.stop:
                self.tell(job.stop)

    def _commit(self, name: str, job: Durable) -> None:
        self.ledger.trained.add((name, job.version))
        job.version, job.attempt, job.ready = job.version + 1, 0, None
        job.training = job.at_trainer = False
        job.failures = 0
        if job.version == job.first.steps:
            job.admitted = False

    def _calm_down(self) -> None:
        """No more trouble: the door opens, all resume, everything is answered. Then every job must end."""
        self._door("open")
        for name in list(self.ledger.jobs):
            if name in self.ledger.jobs:
                self.ledger.jobs[name].paused = self.ledger.jobs[name].held = False
                self.tell(m.Resumed(at=self.at, job=name))
        for _ in range(1000):
            if not self.ledger.jobs:
                break
            self._answer(0.0)
            self.ledger.check_rest()
        if self.ledger.jobs:
            raise Broken(f"{sorted(self.ledger.jobs)} never ended: {self.scheduler.view()}")
        self._check_balance()

    def _check_balance(self) -> None:
        """Whatever was held is given back."""
        admission, pipeline = self.scheduler.admission, self.scheduler.pipeline
        lines = (admission.queue, pipeline.rollouts, pipeline.ready, [*pipeline.rounds.waiting()], pipeline.last_chances)
        held = (len(admission.slots), len(admission.kv), admission.kv.reserved_bytes, pipeline.rolling, *map(len, lines))
        held += (pipeline.training, pipeline.committing)
        if any(held) or pipeline.alone or self.scheduler.jobs or any(admission.fair.running(f"t{n}") for n in range(4)):
            raise Broken(f"something is still held although every job ended: {held}, {pipeline.alone}")

    # Draws

    def _blame(self) -> m.Attribution:
        return self.chance.choice(["platform", "platform", "platform", "user", "reward"])

    def _policy(self) -> Policy:
        pick = self.chance.choice
        chosen = REGIMES[pick(sorted(REGIMES))]
        others = {
            "max_active": pick([1, 2, 4, 8]),
            "kv_budget_bytes": pick([None, 40, 100]),
            "kv_hold": pick(["life", "rollout", "rollout"]),
            "train_slots": pick([1, 1, 2]),
            "admission_order": pick(["fifo", "fair", "priority"]),
            "train_order": pick(["fifo", "priority"]),
            "max_attempts": pick([1, 3]),
            "collocated": pick([False, False, False, True]),
        }
        policy = Policy(**{**others, **chosen})
        if pick([True, True, False]) and policy.kv_hold == "rollout" and not policy.barrier:
            policy = policy.changed({"slot_hold": "step"})
        return policy.changed({"adaptive": pick([None, None, {"start": pick([1, 3]), "settle_seconds": 2.0, "overcommit": pick([1, 2])}])})
