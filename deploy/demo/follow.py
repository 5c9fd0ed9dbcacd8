"""A job as its events tell it, through the product's API: ``engine.follow`` and what the screen needs besides. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from deploy.demo.plan import Order
from engine.events import Span
from engine.follow import JobView


@dataclass(kw_only=True)
class Followed:
    """``last_seq``: the number of the last event taken. ``reason``: why the job waits, lost work or ended."""

    order: Order
    job: str = ""
    last_seq: int = 0
    reason: str = ""
    facts: JobView = field(init=False)

    def __post_init__(self) -> None:
        steps = self.order.spec["train"]["steps"]
        self.facts = JobView(job=self.job, tenant=self.order.tenant, task=self.order.task, steps=steps)

    def take(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            kind, data = event["kind"], event["data"]
            self.last_seq = event["seq"]
            self.facts.take(event)
            if kind in ("waiting", "rollout_lost", "train_lost", "warning", "ended"):
                self.reason = data.get("reason") or data.get("message", "")
            elif kind == "admitted":
                self.reason = ""

    @property
    def done(self) -> bool:
        """Ended, with the last held-out evaluation in if there is to be one."""
        facts = self.facts
        return bool(facts.ending) and (facts.state != "succeeded" or facts.steps in facts.heldout)

    @property
    def spans(self) -> list[Span]:
        return self.facts.spans
