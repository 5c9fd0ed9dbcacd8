"""What the ledger calls a source, in words for people."""

from __future__ import annotations

_NAMED = {"base": "Chats with base models", "grading": "Answers graded by judges", "datasets": "Stored datasets"}
_PREFIXES = {"prb": "Probe", "lr": "Trial of a reward", "job": "Job"}


def words_of(source: str) -> str:
    """\"\" for what has no words but its own name."""
    job, at, step = source.partition("@")
    if at:
        return f"Chats with step {step}"
    return _NAMED.get(source) or _PREFIXES.get(job.partition("_")[0], "")
