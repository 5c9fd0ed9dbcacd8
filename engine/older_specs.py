"""Specs of earlier releases, said as they are now: journals and portals keep for ever what they were told."""

from __future__ import annotations

from typing import Any


def as_said_now(raw: Any) -> Any:
    """``raw`` without what a later release renamed; anything else is left for the schema to judge.

    0.1 had ``rollout.tool_wait``, a wait before each completion was graded. It is an environment of one tool turn now.
    """
    if not isinstance(raw, dict) or not isinstance(rollout := raw.get("rollout"), dict) or "tool_wait" not in rollout:
        return raw
    kept = {name: value for name, value in rollout.items() if name != "tool_wait"}
    now = {**raw, "rollout": kept}
    if (wait := rollout["tool_wait"]) is not None:
        now["environment"] = {"type": "stand_in", "tool_turns": 1, "latency": wait, "answer_turn": False}
    return now
