"""A job's events, folded into what a person wants to know. Pure: feed it events, ask it things."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from deploy.demo.plan import Order
from engine.events import Span

PHASES = {
    "accepted": "queued",
    "waiting": "waiting",
    "admitted": "admitted",
    "rollout_started": "rollout",
    "rollout_ready": "ready to train",
    "train_started": "training",
    "step": "committed",
    "paused": "paused",
    "ended": "ended",
}


@dataclass(kw_only=True)
class JobView:
    order: Order
    job: str = ""
    last_seq: int = 0
    phase: str = "submitted"
    state: str = "submitted"
    reason: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    committed_at: list[datetime] = field(default_factory=list)
    heldout: dict[int, float] = field(default_factory=dict)
    ending: dict[str, Any] = field(default_factory=dict)

    def take(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            kind, data = event["kind"], event["data"]
            self.last_seq = event["seq"]
            self.phase = PHASES.get(kind, self.phase)
            if kind == "step":
                self.steps.append(data)
                self.committed_at.append(datetime.fromisoformat(event["at"]))
            elif kind == "eval":
                self.heldout[data["version"]] = data["reward_mean"]
            elif kind in ("waiting", "rollout_lost", "train_lost", "warning"):
                self.reason = data.get("reason") or data.get("message", "")
            elif kind == "ended":
                self.ending, self.state, self.reason = data, data["state"], data.get("reason", "")
            if kind == "admitted":
                self.state, self.reason = "running", ""

    @property
    def wanted_steps(self) -> int:
        return self.order.spec["train"]["steps"]

    @property
    def done(self) -> bool:
        """Ended, with the last held-out evaluation in if there is to be one."""
        return bool(self.ending) and (self.state != "succeeded" or self.wanted_steps in self.heldout)

    @property
    def rewards(self) -> list[float]:
        return [step["rollout"]["reward_mean"] for step in self.steps]

    @property
    def spans(self) -> list[Span]:
        return [Span.model_validate(span) for step in self.steps for span in step["spans"]]

    def mean_reward(self, steps: slice) -> float | None:
        chosen = self.rewards[steps]
        return round(fmean(chosen), 4) if chosen else None

    @property
    def mismatch_kl_mean(self) -> float | None:
        return fmean(step["mismatch_kl"] for step in self.steps) if self.steps else None

    def eta_seconds(self) -> float | None:
        """By the median of the last ten steps; None before there are two."""
        recent = self.committed_at[-11:]
        gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(recent)]
        return median(gaps) * (self.wanted_steps - len(self.steps)) if gaps else None
