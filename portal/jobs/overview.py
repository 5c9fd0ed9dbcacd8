"""What the run page starts from, however long the job: figures of old steps, what still stands of old events, the newest events whole.

The page's reducer takes the events from there; ``seq`` is the number up to which they are summed up here.
"""

from __future__ import annotations

from typing import Any

from portal.jobs import series
from portal.jobs.evaluation import findings
from portal.jobs.live import newest_of, page_after
from portal.jobs.models import Job, JobEvent, State

TAIL_EVENTS = 250
EXACT_STEPS = 1500
WARNINGS_READ = 500
_WISHES = ("accepted", "pause_requested", "paused", "resumed", "stop_requested")
_WARNINGS = ("warning", "rollout_lost", "train_lost")


def overview(job: Job) -> dict[str, Any]:
    """{seq, history, base, events, last, job}. ``history``: segments of figures; ``base``: the rest of the state at ``seq``."""
    seq = max(0, job.last_seq - TAIL_EVENTS)
    history, tokens = series.segments(job, until_seq=seq, exact_steps=EXACT_STEPS) if seq else ([], {})
    return {
        "seq": seq,
        "history": history,
        "base": _base(job, seq, tokens) if seq else None,
        **page_after(job, seq),
        "job": ending(job),
    }


def ending(job: Job) -> dict[str, Any]:
    """What no event may have told of."""
    return {"state": job.state, "state_reason": job.state_reason, "last_seq": job.last_seq, "ended_at": job.ended_at}


def _base(job: Job, seq: int, tokens: dict[str, int]) -> dict[str, Any]:
    old = job.events.filter(seq__lte=seq)
    first = list(old.filter(kind="step").order_by("seq").values("at", "data__rollout__reward_mean")[:3])
    wish = next(iter(newest_of(job, _WISHES, until_seq=seq, most=1)), None)
    warnings = newest_of(job, _WARNINGS, until_seq=seq, most=WARNINGS_READ)
    return {
        **_wish(wish),
        "first_at": first[0]["at"] if first else None,
        "first_rewards": [step["data__rollout__reward_mean"] for step in first],
        "tokens": tokens,
        "evals": [{**event["data"], "at": event["at"]} for event in old.filter(kind="eval").order_by("seq").values("at", "data")],
        "warnings": [{"kind": event.kind, "at": event.at, "data": event.data} for event in warnings],
        "findings": findings(job, until_seq=seq)["standing"],
    }


def _wish(event: JobEvent | None) -> dict[str, Any]:
    """State and open request of a job with more events than fit here: it has begun, and runs unless it was paused last."""
    kind = event.kind if event else "accepted"
    asked = {"pause_requested": "pause", "stop_requested": "stop"}.get(kind)
    request = {"kind": asked, "at": event.at, "reason": event.data.get("reason") or ""} if event and asked else None
    return {"state": State.PAUSED if kind == "paused" else State.RUNNING, "request": request}
