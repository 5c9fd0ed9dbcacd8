"""What the scheduler hears and says: facts in the past tense, commands in the imperative.

Every fact carries ``at``, seconds on the manager's monotonic clock (or the simulator's virtual one). The scheduler never reads a clock.

``version`` in every message is the policy version that the work *starts from*: ``TrainDone(version=3)`` says that the step
which trained on version 3's trajectories has been committed, so the job's HEAD is now 4.
``attempt`` counts dispatches per (job, version) from 1. Answers to any other attempt than the latest are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.core.policy import Policy

Attribution = Literal["user", "reward", "platform"]
Outcome = Literal["succeeded", "failed", "cancelled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted(Fact):
    """A job entered the queue: new (``version`` 0), or restored after a restart with its HEAD and last attempt.

    ``ready_attempt``: the attempt whose finished batch for ``version`` is already in the store, if any.
    ``kv_bytes``: the estimated KV-cache footprint of one whole step (2 · layers · kv_heads · head_dim · dtype · context · prompts · group).
    ``step_tokens``: the tokens of one whole step at full context, which the fair share starts from (None: it goes by ``kv_bytes``).
    ``eval_every``: evaluate each n-th committed version (0: never); ``eval_ends``: evaluate v0 and the last version.
    ``admitted``: it already held a place when the last manager stopped, so it takes one back, also while admission is paused. Send
    restored jobs either with the admitted ones first, or all in order while admission is ``paused``, then open it.
    ``paused`` with ``admitted`` and ``ready_attempt``: the pause came in mid-step, so that step commits before the job holds.
    ``last_evaluated``: the newest version whose evaluation is journaled (-1: none), so that a lost evaluation is run again.
    """

    job: str
    tenant: str
    steps: int
    kv_bytes: int
    weight: float = 1.0
    running_cap: int | None = None
    priority: int = 0
    version: int = 0
    attempt: int = 0
    ready_attempt: int | None = None
    step_tokens: int | None = None
    eval_every: int = 0
    eval_ends: bool = False
    last_evaluated: int = -1
    admitted: bool = False
    paused: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutDone(Fact):
    """The batch of (job, version, attempt) is complete and durable in the store.

    ``tokens``: what it took, prefilled and sampled; None where nobody counted: the fair share then keeps its estimate.
    """

    job: str
    version: int
    attempt: int
    tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutFailed(Fact):
    job: str
    version: int
    attempt: int
    reason: str
    attribution: Attribution


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained(Fact):
    """The trainer has done its part, and can take the next batch; ``TrainDone`` follows once the result is committed.

    A driver that does not tell of it keeps the trainer's slot until the commit.
    """

    job: str
    version: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainDone(Fact):
    """``version`` + 1 is committed."""

    job: str
    version: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainFailed(Fact):
    job: str
    version: int
    attempt: int
    reason: str
    attribution: Attribution


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadFailed(Fact):
    """The sampler refused, or could not verify, the adapter of ``version``."""

    job: str
    version: int
    attempt: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """What a worker had under way for a job."""

    job: str
    version: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerLost(Fact):
    """A sampler's replica or a trainer died with all that it ran: each is redone, or given up after too many losses.

    The same as a failed rollout or training of each, except that all of it is lost before anything is started anew, so the lines decide
    who is first. A driver that hears of a death from each call by itself tells the failures one by one instead.
    """

    lost: tuple[Lost, ...]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalDone(Fact):
    """An evaluation ended, well or badly: an evaluation never blocks or fails its job."""

    job: str
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Paused(Fact):
    """A pause was asked for: the running step commits, then the job holds."""

    job: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed(Fact):
    job: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Stopped(Fact):
    """End this job: generation is aborted, but a training that has started commits first."""

    job: str
    outcome: Outcome
    reason: str
    attribution: Attribution


@dataclass(frozen=True, kw_only=True, slots=True)
class Reprioritised(Fact):
    job: str
    priority: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyChanged(Fact):
    policy: Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class AdmissionChanged(Fact):
    """``open`` admits, ``paused`` admits no new job, ``drain`` also starts no new step for admitted ones."""

    mode: Literal["open", "paused", "drain"]


@dataclass(frozen=True, kw_only=True, slots=True)
class KvSample(Fact):
    """The sampler's own reading: ``used`` in 0..1, requests ``waiting``, ``preempted`` since the last sample. See ``core.adaptive``."""

    used: float
    waiting: int
    preempted: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick(Fact):
    """Time passed: lets time-dependent orders (ageing) act when nothing else happens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    job: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Admit(Command):
    """The job now holds a place (slot and KV). Journal it: a restart gives the place back. Not said of a restored job that kept it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRollout(Command):
    version: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareTrain(Command):
    """The next in line for a trainer that is at work: have its batch at hand. A hint: it may be overtaken, or never come to its turn."""

    version: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StartTrain(Command):
    version: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StartEval(Command):
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Abort(Command):
    """Stop generating for this job; what it sampled for the current attempt is void."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hold(Command):
    """The job has become quiet and is now paused. Its place is free for others; after ``Resumed`` it queues again in its old order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Release(Command):
    """The job is over: free its slot and adapters, and journal the ending."""

    outcome: Outcome
    reason: str
    attribution: Attribution
