"""How long the trainer's part of a step takes here, as the latest steps of all jobs tell: what a probe cannot measure itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.core.pace import NEWEST


@dataclass(kw_only=True, slots=True)
class StepPace:
    """Means that forget, None before the first step. ``wait_seconds``: for other jobs, per step. Steps without an update say nothing."""

    train_seconds_per_token: float | None = None
    commit_seconds: float | None = None
    wait_seconds: float | None = None

    def observe(self, step: dict[str, Any]) -> None:
        """``step``: the data of a ``step`` event."""
        seconds, trained = step.get("seconds", {}), step.get("tokens", {}).get("trained") or 0
        if not trained or not seconds:
            return
        self.train_seconds_per_token = _mean(self.train_seconds_per_token, seconds.get("train", 0.0) / trained)
        self.commit_seconds = _mean(self.commit_seconds, seconds.get("commit", 0.0))
        self.wait_seconds = _mean(self.wait_seconds, seconds.get("wait_rollout", 0.0) + seconds.get("wait_train", 0.0))


def _mean(before: float | None, newest: float) -> float:
    return newest if before is None else before + NEWEST * (newest - before)
