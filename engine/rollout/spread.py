"""One job's rollout over several replicas: whole groups apart, and the parts' batches together again.

What is sampled depends on neither: every completion has a seed of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from msgspec.structs import replace as changed

from engine.events import RolloutSummary
from engine.ports import RolloutRequest, RolloutResult
from engine.rollout.summary import SECONDS, of_parts
from engine.trajectory import decode, encode


def parts(request: RolloutRequest, count: int) -> list[RolloutRequest]:
    """``request`` in at most ``count`` parts of about as many prompts each, in the rows' order."""
    count = max(1, min(count, len(request.rows)))
    if count == 1:
        return [request]
    cuts = [round(number * len(request.rows) / count) for number in range(count + 1)]
    return [replace(request, rows=request.rows[start:end]) for start, end in pairwise(cuts)]


def joined(results: Sequence[RolloutResult]) -> RolloutResult:
    """The batch that one replica would have made of all the rows. The phases are those of the part that took longest."""
    batches = [decode(result.batch) for result in results]
    trajectories = [trajectory for batch in batches for trajectory in batch.trajectories]
    slowest = max((result.summary for result in results), key=lambda summary: sum(summary[name] for name in SECONDS))
    summary: dict[str, Any] = RolloutSummary(
        **of_parts(results, trajectories, group_size=batches[0].group_size),
        **{name: slowest[name] for name in SECONDS},
    ).model_dump()
    return RolloutResult(batch=encode(changed(batches[0], trajectories=trajectories, summary=summary)), summary=summary)
