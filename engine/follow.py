"""One job as its events tell it, and what several of them say about sharing: for the demo, the bench and tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from engine.events import Span
from engine.overlap import overlap

_PHASES = {
    "accepted": "preparing",
    "waiting": "waiting",
    "admitted": "admitted",
    "rollout_started": "rollout",
    "rollout_ready": "ready",
    "rollout_lost": "rollout lost",
    "train_started": "training",
    "train_lost": "training lost",
    "step": "committed",
    "paused": "paused",
}


@dataclass(kw_only=True)
class JobView:
    """``take`` every event of ``job`` in order. ``cursor``: the engine's offset before the job began."""

    job: str
    tenant: str
    task: str
    steps: int
    cursor: int = 0
    phase: str = "submitted"
    rewards: list[float] = field(default_factory=list)
    committed: list[dict[str, Any]] = field(default_factory=list)
    heldout: dict[int, float] = field(default_factory=dict)
    comparisons: dict[int, dict[str, Any] | None] = field(default_factory=dict)  # of a version with version 0, see engine.paired
    lost: int = 0
    ending: dict[str, Any] = field(default_factory=dict)

    def take(self, event: dict[str, Any]) -> None:
        kind, data = event["kind"], event["data"]
        self.phase = _PHASES.get(kind, self.phase)
        if kind == "step":
            self.committed.append(data)
            if (reward := data["rollout"]["reward_mean"]) is not None:
                self.rewards.append(reward)
        elif kind == "eval":
            if data["reward_mean"] is not None:
                self.heldout[data["version"]] = data["reward_mean"]
            self.comparisons[data["version"]] = data.get("comparison")
        elif kind in ("rollout_lost", "train_lost"):
            self.lost += 1
        elif kind == "ended":
            self.ending, self.phase = data, data["state"]

    @property
    def step(self) -> int:
        return len(self.committed)

    @property
    def state(self) -> str:
        return self.ending.get("state", "open")

    @property
    def spans(self) -> list[Span]:
        return [Span.model_validate(span) for data in self.committed for span in data["spans"]]

    @property
    def commits(self) -> list[float]:
        """When each step was committed, in UTC epoch seconds."""
        return [max(span["end"] for span in data["spans"]) for data in self.committed]

    @property
    def mismatch_kl(self) -> float | None:
        """Mean over the steps that have one (nats per token); not rounded: on a processor it is tiny."""
        known = [data["mismatch_kl"] for data in self.committed if data["mismatch_kl"] is not None]
        return fmean(known) if known else None

    @property
    def reward_text(self) -> str:
        return f"{self.rewards[-1]:.2f}" if self.rewards else "–"

    @property
    def left_text(self) -> str:
        """The time until the end at the pace so far."""
        if self.ending or self.step < 2:
            return "–"
        pace = (self.commits[-1] - self.commits[0]) / (self.step - 1)
        return f"{pace * (self.steps - self.step):.0f} s"

    def report(self) -> dict[str, Any]:
        return {
            "tenant": self.tenant,
            "task": self.task,
            "job": self.job,
            "state": self.state,
            "reason": self.ending.get("reason", ""),
            "steps": self.step,
            "reward_first3": _mean(self.rewards[:3]),
            "reward_last3": _mean(self.rewards[-3:]),
            "heldout": {str(version): reward for version, reward in sorted(self.heldout.items())},
            "ttfs_s": self.ending.get("ttfs_seconds"),
            "tpts_s": self.ending.get("tpts_seconds"),
            "completion_s": self.ending.get("completion_seconds"),
            "mismatch_kl": self.mismatch_kl,
            "attempts_lost": self.lost,
            "seconds": {name: _mean([data["seconds"][name] for data in self.committed]) for name in _names(self.committed)},
        }


def shares(views: Mapping[str, JobView], sampler_before: Mapping[str, Any], sampler_after: Mapping[str, Any]) -> dict[str, float]:
    """How much the jobs ran beside one another. ``sampler_*``: the sampler's counters at the beginning and at the end."""
    found = overlap({job: view.spans for job, view in views.items()})
    base = sampler_before if sampler_after.get("decode_steps", 0) >= sampler_before.get("decode_steps", 0) else {}
    decoded = sampler_after.get("decode_steps", 0) - base.get("decode_steps", 0)
    both = sampler_after.get("decode_steps_with_2_adapters", 0) - base.get("decode_steps_with_2_adapters", 0)
    return {
        "rollout_overlap": round(found.rollout_overlap, 3),
        "train_rollout_overlap": round(found.train_rollout_overlap, 3),
        "decode_steps_with_2_adapters": round(both / decoded, 3) if decoded else 0.0,
    }


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return round(sum(known) / len(known), 5) if known else None


def _names(committed: list[dict[str, Any]]) -> list[str]:
    return list(committed[0]["seconds"]) if committed else []
