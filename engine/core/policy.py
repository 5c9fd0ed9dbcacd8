"""A scheduling regime is a value. Every regime that the paper compares, and ours, is one ``Policy``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from engine.core.adaptive import Adaptive


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """How jobs share the rollout engine and the trainer.

    ``max_active``: adapter slots that jobs may hold at once; where they are held for life, the jobs admitted at once.
    ``slot_hold``: a job holds its slot for ``life`` (admission to end), or only for a ``step`` (rollout to commit): then the order decides
    anew after each step, and nobody waits for a job, only for steps. That needs ``kv_hold`` ``rollout`` and no barrier.
    ``barrier``: no training of a round starts before every rollout of the round is ready, and no admitted job starts its next rollout
    before every job of the round has committed. A job admitted once the round's training has begun joins the next round.
    ``max_rollouts``: jobs in rollout at once (None: all admitted).
    ``collocated``: one device set, so rollout and training exclude each other; switching costs nothing.
    ``kv_budget_bytes``: bound on the summed footprint of admitted jobs (None: unbounded). A job above it runs alone.
    ``kv_hold``: a job holds its footprint for ``life`` (admission to end) or only while in ``rollout``.
    ``adaptive``: the number of jobs in rollout follows the sampler's measured memory, and the budget may be overcommitted by
    ``adaptive.overcommit`` (None: estimates alone decide; see ``core.adaptive``).
    ``admission_order``: ``fifo`` by submission; ``priority`` where one priority point weighs as much as ``ageing_seconds`` of waiting, so
    nothing starves; ``fair`` by tenant, the least served per weight first (see ``core.fair``), and by priority within a tenant. Fair holds
    also for admitted jobs that want to roll out; in the other orders these take turns, unless slots are held per step.
    """

    max_active: int
    slot_hold: Literal["life", "step"] = "life"
    barrier: bool = False
    max_rollouts: int | None = None
    collocated: bool = False
    kv_budget_bytes: int | None = None
    kv_hold: Literal["life", "rollout"] = "life"
    adaptive: Adaptive | None = None
    train_slots: int = 1
    admission_order: Literal["fifo", "fair", "priority"] = "fifo"
    train_order: Literal["fifo", "priority"] = "fifo"
    max_attempts: int = 3
    ageing_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"policy.{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name in ("barrier", "collocated"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"policy.{name} must be true or false, got {getattr(self, name)!r}")
        for name in ("max_active", "train_slots", "max_attempts"):
            _check_count(name, getattr(self, name))
        for name in ("max_rollouts", "kv_budget_bytes"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name))
        if not isinstance(self.adaptive, Adaptive | None):
            raise ValueError(f"policy.adaptive must be an object or null, got {self.adaptive!r}")
        if not 0 < self.ageing_seconds < float("inf"):
            raise ValueError(f"policy.ageing_seconds must be positive, got {self.ageing_seconds}")
        if self.slot_hold == "step" and (self.kv_hold != "rollout" or self.barrier):
            raise ValueError("policy.slot_hold can be step only with kv_hold rollout and without barrier")

    def changed(self, changes: Mapping[str, Any]) -> Policy:
        """This policy with some fields changed; ``adaptive`` may come as a mapping of its own fields, the others being the defaults.

        Raises ``TypeError`` or ``ValueError`` that names what is wrong.
        """
        adaptive = changes.get("adaptive")
        if isinstance(adaptive, Mapping):
            if unknown := adaptive.keys() - {field.name for field in dataclasses.fields(Adaptive)}:
                raise ValueError(f"policy.adaptive has no {', '.join(sorted(unknown))}")
            changes = {**changes, "adaptive": Adaptive(**adaptive)}
        if unknown := changes.keys() - {field.name for field in dataclasses.fields(self)}:
            raise ValueError(f"a policy has no {', '.join(sorted(unknown))}")
        return dataclasses.replace(self, **changes)


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"policy.{name} must be a whole number from 1, got {value!r}")


_CHOICES = {
    name: get_args(hint)
    for name, hint in get_type_hints(Policy).items()
    if name in ("slot_hold", "kv_hold", "admission_order", "train_order")
}


def regime(name: str, *, slots: int, kv_budget_bytes: int | None = None, **changes: Any) -> Policy:
    """The ``Policy`` of a named regime over ``slots`` adapter slots. Raises ``KeyError`` for an unknown name."""
    make = REGIMES[name]
    return Policy(**{"max_active": slots, "kv_budget_bytes": kv_budget_bytes, **make, **changes})


def shipped(name: str, *, slots: int, kv_budget_bytes: int | None, train_slots: int = 1) -> Policy:
    """What an engine starts with: the named regime, and of ``marlaas``, the one for tenants, what bounds their wait for each other.

    The paper's FIFO with places for life would let a small job wait for whole large ones.
    """
    changes = FOR_TENANTS if name == "marlaas" else {}
    return regime(name, slots=slots, kv_budget_bytes=kv_budget_bytes, train_slots=train_slots, **changes)


FOR_TENANTS: dict[str, Any] = {"admission_order": "fair", "kv_hold": "rollout", "slot_hold": "step"}

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
