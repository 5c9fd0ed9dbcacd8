"""How long things take, as observed: means that forget, per job and over all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

NEWEST = 0.3  # weight of the newest observation: about the last three count, since completions grow and shrink as a job learns


@dataclass(kw_only=True, slots=True)
class Mean:
    """Exponentially weighted; ``seconds`` is None before the first observation."""

    seconds: float | None = None
    is_guess: bool = True

    def observe(self, seconds: float) -> None:
        self.seconds = seconds if self.is_guess or self.seconds is None else self.seconds + NEWEST * (seconds - self.seconds)
        self.is_guess = False

    def guess(self, seconds: float) -> None:
        """Something to go by until the first observation."""
        if self.is_guess:
            self.seconds = seconds


@dataclass(kw_only=True, slots=True)
class Pace:
    """``step``: from commit to commit, waits included, pauses not. A first step, which nothing was before, is a guess at it."""

    rollout: Mean = field(default_factory=Mean)
    train: Mean = field(default_factory=Mean)
    step: Mean = field(default_factory=Mean)
