"""A scheduler to talk to in short words: facts by method, commands back as strings such as ``rollout a 0/1`` (job, version/attempt)."""

from __future__ import annotations

from typing import Any

from engine.core import messages as m
from engine.core.policy import Policy
from engine.core.scheduler import Scheduler


def say(command: m.Command) -> str:
    match command:
        case m.StartRollout():
            return f"rollout {command.job} {command.version}/{command.attempt}"
        case m.StartTrain():
            return f"train {command.job} {command.version}/{command.attempt}"
        case m.StartEval():
            return f"eval {command.job} {command.version}"
        case m.Release():
            return f"release {command.job} {command.outcome}"
        case _:
            return f"{type(command).__name__.lower()} {command.job}"


class House:
    """``at`` moves only when a test says so. Answers concern the job's current version and attempt unless given."""

    def __init__(self, policy: Policy | None = None, **changes: Any) -> None:
        self.scheduler = Scheduler(policy or Policy(**{"max_active": 8, **changes}))
        self.at = 0.0
        self.commands: list[m.Command] = []

    def tell(self, fact: type[m.Fact], **fields: Any) -> list[str]:
        commands = self.scheduler.handle(fact(at=self.at, **fields))
        self.commands += commands
        return [say(command) for command in commands if not isinstance(command, m.PrepareTrain)]

    def prepared(self) -> list[str]:
        """What the trainer was told beforehand, so far."""
        said = [command for command in self.commands if isinstance(command, m.PrepareTrain)]
        return [f"{command.job} {command.version}/{command.attempt}" for command in said]

    def submit(self, job: str, **fields: Any) -> list[str]:
        return self.tell(m.Submitted, **{"job": job, "tenant": f"tenant of {job}", "steps": 3, "kv_bytes": 10, **fields})

    def rolled(self, job: str, **key: int) -> list[str]:
        return self.tell(m.RolloutDone, job=job, **self._key(job, key))

    def left_trainer(self, job: str, **key: int) -> list[str]:
        """Trained, not committed yet."""
        return self.tell(m.Trained, job=job, **self._key(job, key))

    def trained(self, job: str, **key: int) -> list[str]:
        return self.tell(m.TrainDone, job=job, **self._key(job, key))

    def evaluated(self, job: str, version: int) -> list[str]:
        return self.tell(m.EvalDone, job=job, version=version)

    def rollout_failed(self, job: str, by: str = "platform", **key: int) -> list[str]:
        return self.tell(m.RolloutFailed, job=job, reason="it broke", attribution=by, **self._key(job, key))

    def load_failed(self, job: str) -> list[str]:
        return self.tell(m.LoadFailed, job=job, reason="not the adapter", **self._key(job, {}))

    def train_failed(self, job: str, by: str = "platform", **key: int) -> list[str]:
        return self.tell(m.TrainFailed, job=job, reason="it broke", attribution=by, **self._key(job, key))

    def pause(self, job: str) -> list[str]:
        return self.tell(m.Paused, job=job)

    def resume(self, job: str) -> list[str]:
        return self.tell(m.Resumed, job=job)

    def cancel(self, job: str) -> list[str]:
        return self.tell(m.Stopped, job=job, outcome="cancelled", reason="asked to", attribution="user")

    def step(self, job: str) -> list[str]:
        """One whole step; what the commit led to."""
        self.rolled(job)
        return self.trained(job)

    def phase(self, job: str) -> str:
        return self.scheduler.view()[job].phase

    def ending(self) -> m.Release:
        release = self.commands[-1]
        assert isinstance(release, m.Release)
        return release

    def _key(self, job: str, key: dict[str, int]) -> dict[str, int]:
        record = self.scheduler.jobs.get(job)
        now = {"version": record.version, "attempt": record.attempt} if record else {"version": 0, "attempt": 1}
        return {**now, **key}
