"""What the actors are called, how one finds another, and what may be asked of the manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NAMESPACE = "marlaas"
MANAGER = "manager"
HTTP = "http"

# Through HTTP, that is; everything else of the manager is its own. All of them may be repeated: they refuse what has been done already.
MANAGER_METHODS = frozenset(
    {
        *("submit", "cancel", "pause", "resume", "reprioritise", "delete", "delete_version", "delete_completions"),
        *("events", "adapter", "rollouts", "groups", "row_versions", "evaluation", "models", "tokenizer", "estimate", "servable"),
        *("status", "overview", "set_admission", "set_policy"),
        *("probe", "probe_state", "cancel_probe", "judge"),
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Factories:
    """Which classes the sampler's and the trainer's actors wrap, as ``module:attribute``. Tests put fakes here."""

    rollout: str = "engine.rollout.worker:RolloutWorker"
    train: str = "engine.train.worker:TrainWorker"


def rollout(replica: int) -> str:
    return f"rollout-{replica}"


def train(group: int, rank: int) -> str:
    return f"trainer-{rank}" if group == 0 else f"trainer-{group}-{rank}"


def is_ours(name: str) -> bool:
    """Whether an engine gives its actors names like this one."""
    return name in (MANAGER, HTTP) or name.partition("-")[0] in ("rollout", "trainer")


def find(name: str) -> Any:
    """A handle of a living or restarting actor. Raises ``ValueError`` when there is none."""
    import ray

    return ray.get_actor(name, namespace=NAMESPACE)
