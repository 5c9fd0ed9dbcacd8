"""A small town in virtual time around the real scheduler: steps take as long, and as many tokens, as each job's laws say."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from engine.core import messages as m
from engine.core.policy import Policy
from engine.core.scheduler import Scheduler

Law = Callable[[int], float]


@dataclass(kw_only=True)
class Work:
    """What a step of a job takes, by its version. ``fails``: whether that step's rollout fails, and who is to blame."""

    tenant: str
    rollout_seconds: Law = lambda version: 10.0
    train_seconds: float = 0.0
    tokens: Law = lambda version: 100.0
    fails: Callable[[int], m.Attribution | None] = lambda version: None


@dataclass(kw_only=True)
class Town:
    """``run`` plays until a moment; the counters say what has happened until then."""

    policy: Policy
    at: float = 0.0
    work: dict[str, Work] = field(default_factory=dict)
    starts: list[tuple[float, str]] = field(default_factory=list)  # (when, tenant) of each rollout
    first_start: dict[str, float] = field(default_factory=dict)
    commits: dict[str, list[float]] = field(default_factory=dict)
    tokens: Counter[str] = field(default_factory=Counter)  # by tenant
    released: dict[str, m.Release] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.policy)
        self._alarms: list[tuple[float, int, Callable[[], m.Fact]]] = []
        self._numbers = count()

    def submit(self, job: str, work: Work, *, at: float = 0.0, **fields: Any) -> None:
        self.work[job] = work
        given = {"steps": 10**6, "kv_bytes": 1, **fields}
        self.later(at, lambda: m.Submitted(at=self.at, job=job, tenant=work.tenant, **given))

    def later(self, at: float, fact: Callable[[], m.Fact]) -> None:
        heapq.heappush(self._alarms, (at, next(self._numbers), fact))

    def run(self, until: float) -> None:
        while self._alarms and self._alarms[0][0] <= until:
            self.at, _, fact = heapq.heappop(self._alarms)
            self._tell(fact())

    def steps(self, tenant: str) -> int:
        return sum(len(commits) for job, commits in self.commits.items() if self.work[job].tenant == tenant)

    def _tell(self, fact: m.Fact) -> None:
        if isinstance(fact, m.TrainDone):
            self.commits.setdefault(fact.job, []).append(self.at)
        for command in self.scheduler.handle(fact):
            self._obey(command)

    def _obey(self, command: m.Command) -> None:
        work = self.work[command.job]
        if isinstance(command, m.StartRollout):
            self.starts.append((self.at, work.tenant))
            self.first_start.setdefault(command.job, self.at)
            self.later(self.at + work.rollout_seconds(command.version), lambda: self._rolled(work, command))
        elif isinstance(command, m.StartTrain):
            key = {"job": command.job, "version": command.version, "attempt": command.attempt}
            self.later(self.at + work.train_seconds, lambda: m.TrainDone(at=self.at, **key))
        elif isinstance(command, m.Release):
            self.released[command.job] = command

    def _rolled(self, work: Work, command: m.StartRollout) -> m.Fact:
        key = {"at": self.at, "job": command.job, "version": command.version, "attempt": command.attempt}
        tokens = int(work.tokens(command.version))
        self.tokens[work.tenant] += tokens
        if (by := work.fails(command.version)) is not None:
            return m.RolloutFailed(**key, reason="it broke", attribution=by)
        return m.RolloutDone(**key, tokens=tokens)
