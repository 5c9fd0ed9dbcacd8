"""A scheduling regime is a value. Every regime that the paper compares, and ours, is one ``Policy``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """How jobs share the rollout engine and the trainer.

    ``max_active``: jobs admitted at once; also the adapter slots that admission may use.
    ``barrier``: no training of a round starts before every rollout of the round is ready, and no admitted job starts its next rollout
    before every job of the round has committed. A job admitted once the round's training has begun joins the next round.
    ``max_rollouts``: jobs in rollout at once (None: all admitted).
    ``collocated``: one device set, so rollout and training exclude each other; switching costs nothing.
    ``kv_budget_bytes``: bound on the summed footprint of admitted jobs (None: unbounded). A job above it runs alone.
    ``kv_hold``: a job holds its footprint for ``life`` (admission to end) or only while in ``rollout``.
    ``admission_order``: ``fifo`` by submission; ``priority`` where one priority point weighs as much as ``ageing_seconds`` of waiting, so
    nothing starves; ``fair`` by tenant, the least served per weight first (see ``core.fair``), and by priority within a tenant.
    """

    max_active: int
    barrier: bool = False
    max_rollouts: int | None = None
    collocated: bool = False
    kv_budget_bytes: int | None = None
    kv_hold: Literal["life", "rollout"] = "life"
    train_slots: int = 1
    admission_order: Literal["fifo", "fair", "priority"] = "fifo"
    train_order: Literal["fifo", "priority"] = "fifo"
    max_attempts: int = 3
    ageing_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name in ("max_active", "train_slots", "max_attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"policy.{name} must be at least 1, got {getattr(self, name)}")
        if self.max_rollouts is not None and self.max_rollouts < 1:
            raise ValueError(f"policy.max_rollouts must be at least 1 or absent, got {self.max_rollouts}")
        if self.kv_budget_bytes is not None and self.kv_budget_bytes < 1:
            raise ValueError(f"policy.kv_budget_bytes must be positive or absent, got {self.kv_budget_bytes}")
        if self.ageing_seconds <= 0:
            raise ValueError(f"policy.ageing_seconds must be positive, got {self.ageing_seconds}")


def regime(name: str, *, slots: int, kv_budget_bytes: int | None = None, **changes: Any) -> Policy:
    """The ``Policy`` of a named regime over ``slots`` adapter slots. Raises ``KeyError`` for an unknown name."""
    make = REGIMES[name]
    return Policy(**{"max_active": slots, "kv_budget_bytes": kv_budget_bytes, **make, **changes})


# MARLaaS, arXiv 2605.08527: the systems compared and the ablations. "no-async-no-multi-lora" is read both ways, see DESIGN.
REGIMES: dict[str, dict[str, Any]] = {
    "single-disaggregated": {"max_active": 1},
    "single-collocated": {"max_active": 1, "collocated": True},
    "multi-lora-sync": {"barrier": True},
    "marlaas": {},
    "no-async": {"barrier": True},
    "no-multi-lora": {"max_rollouts": 1},
    "no-async-no-multi-lora": {"barrier": True, "max_rollouts": 1},
}
