"""What a committed step came to, as flat figures by name: the charts, the table, the comparison and the CSV all read these.

``static/js/figures.js`` says the same of a live event; a test holds the two to one another. A figure that is not known, or was no finite
number, is None.
"""

from __future__ import annotations

from typing import Any

PHASES = ("wait_rollout", "rollout", "env", "reward", "wait_train", "train", "commit")
TOKENS = ("prefill", "sampled", "trained", "judge")
_OF_STEP = (
    "loss",
    "grad_norm",
    "entropy",
    "clip_share",
    "clip_low_share",
    "clip_high_share",
    "importance_capped_share",
    "mismatch_kl",
    "max_ratio",
    "base_kl",
    "overlong_penalty",
    "learning_rate",
)
_OF_ROLLOUT = {
    "reward": "reward_mean",
    "reward_std": "reward_std",
    "reward_min": "reward_min",
    "reward_max": "reward_max",
    "length": "length_mean",
    "length_max": "length_max",
    "invalid": "invalid",
    "groups_all_right": "groups_all_right",
    "groups_all_wrong": "groups_all_wrong",
    "groups_dropped": "groups_dropped",
    "tool_calls": "tool_calls",
}
_SHARES = {
    "truncated": ("truncated", "completions"),
    "right": ("groups_all_right", "groups"),
    "wrong": ("groups_all_wrong", "groups"),
    "tokens_per_second": ("sampled_tokens", "rollout_seconds"),
}
PART = "part:"
FIXED = (
    *_OF_ROLLOUT,
    *_SHARES,
    *_OF_STEP,
    *(f"tokens_{kind}" for kind in TOKENS),
    *(f"seconds_{phase}" for phase in PHASES),
)


def figures(step: dict[str, Any]) -> dict[str, float | None]:
    """The figures of a ``step`` event's data; one ``part:NAME`` for each component of the reward."""
    rollout = step.get("rollout") or {}
    found = {name: _number(rollout.get(field)) for name, field in _OF_ROLLOUT.items()}
    found |= {name: _share(rollout.get(part), rollout.get(whole)) for name, (part, whole) in _SHARES.items()}
    found |= {name: _number(step.get(name)) for name in _OF_STEP}
    found |= {f"tokens_{kind}": _number((step.get("tokens") or {}).get(kind)) for kind in TOKENS}
    found |= {f"seconds_{phase}": _number((step.get("seconds") or {}).get(phase)) for phase in PHASES}
    return found | {f"{PART}{name}": _number(part.get("mean")) for name, part in (rollout.get("parts") or {}).items()}


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _share(part: Any, whole: Any) -> float | None:
    return part / whole if _number(part) is not None and _number(whole) else None
