"""How long things take, as observed: means that forget, per job and over all of them."""

from __future__ import annotations

from dataclasses import dataclass

NEWEST = 0.3  # weight of the newest observation: about the last three count, since completions grow and shrink as a job learns


@dataclass(kw_only=True, slots=True)
class Pace:
    """Exponentially weighted means, None before the first observation.

    ``step_seconds``: from commit to commit, waits included, pauses not; while ``step_is_guess``, only a first step was seen, which nothing
    came before. Plain numbers, no objects: ten thousand jobs more for Python's collector to visit would cost more than the scheduler.
    """

    rollout_seconds: float | None = None
    train_seconds: float | None = None
    step_seconds: float | None = None
    step_is_guess: bool = True

    def observe_rollout(self, seconds: float) -> None:
        self.rollout_seconds = _mean(self.rollout_seconds, seconds)

    def observe_train(self, seconds: float) -> None:
        self.train_seconds = _mean(self.train_seconds, seconds)

    def observe_step(self, seconds: float) -> None:
        self.step_seconds = _mean(None if self.step_is_guess else self.step_seconds, seconds)
        self.step_is_guess = False

    def guess_step(self, seconds: float) -> None:
        """Something to go by until the first observation."""
        if self.step_is_guess:
            self.step_seconds = seconds


def _mean(before: float | None, seconds: float) -> float:
    return seconds if before is None else before + NEWEST * (seconds - before)
