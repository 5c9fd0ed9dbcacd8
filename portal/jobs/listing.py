"""Jobs as lists show them: with what each is doing now and its last rewards. One query for all rows, bounded however long a job has run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q

from portal.jobs import reach
from portal.jobs.models import Job, JobEvent, State

SPARK_POINTS = 40
# Only the newest events of each job are read: a step makes about four, so these hold the last rewards and the phase.
EVENTS_READ = 300
_REWARD = "data__rollout__reward_mean"
# What the page calls the time after an event of this kind.
_QUEUE = ("data__position", "data__next_seconds")
_PHASES = {
    "accepted": "accepted",
    "waiting": "waiting",
    "admitted": "starting",
    "rollout_started": "rollout",
    "rollout_ready": "ready to train",
    "rollout_lost": "redoing the rollout",
    "train_started": "training",
    "train_lost": "redoing the training",
    "step": "between steps",
    "resumed": "waiting",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    job: Job
    rewards: list[float]
    phase: str
    seconds_left: float | None
    position: int | None = None
    begins_at: datetime | None = None
    heard_at: datetime | None = None
    engine_away_since: datetime | None = None

    @property
    def reward(self) -> float | None:
        """The mean of the last three steps: one step's reward is noise."""
        last = self.rewards[-3:]
        return sum(last) / len(last) if last else None


def rows(jobs: Iterable[Job]) -> list[Row]:
    jobs = list(jobs)
    newest, away = _newest({job.pk: job.last_seq for job in jobs}), reach.away(jobs)
    return [_row(job, newest[job.pk], away.get(job.pk)) for job in jobs]


def away_since(shown: Iterable[Row]) -> datetime | None:
    """Since when an engine of some of these jobs cannot be reached: the earliest."""
    return min((row.engine_away_since for row in shown if row.engine_away_since), default=None)


def _row(job: Job, events: list[dict[str, Any]], away: datetime | None) -> Row:
    """``events``: the job's newest, oldest first. What they foretell is not told of a job whose engine is ``away``."""
    steps = [event for event in events if isinstance(event[_REWARD], int | float)][-SPARK_POINTS:]
    phase = _PHASES[events[-1]["kind"]] if events and job.is_open and job.state != State.PAUSED else ""
    last = events[-1] if events else None
    queued = last if last and last["kind"] == "waiting" and job.is_open and job.state != State.PAUSED and not away else {}
    return Row(
        job=job,
        rewards=[step[_REWARD] for step in steps],
        phase=phase if not away or not phase else f"{phase} when it was last heard",
        seconds_left=None if away else _seconds_left(job, steps),
        position=queued.get("data__position"),
        begins_at=_later(queued.get("at"), queued.get("data__next_seconds")),
        heard_at=last and last["at"],
        engine_away_since=away,
    )


def _later(at: datetime | None, seconds: float | None) -> datetime | None:
    return None if at is None or not isinstance(seconds, int | float) else at + timedelta(seconds=seconds)


def _seconds_left(job: Job, steps: list[dict[str, Any]]) -> float | None:
    recent = steps[-9:]
    if job.state != State.RUNNING or len(recent) < 2:
        return None
    pace = (recent[-1]["at"] - recent[0]["at"]).total_seconds() / (len(recent) - 1)
    return pace * (job.steps - job.version)


def _newest(last: dict[int, int]) -> dict[int, list[dict[str, Any]]]:
    """Per job (its key → the number of its last event) the newest events that tell of a phase, with the reward where they are steps."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    if not last:
        return found
    # One range of the index for each job; compared with a column of the jobs instead, the database would read all of those.
    ranges = reduce(or_, (Q(job_id=job, seq__gt=seq - EVENTS_READ) for job, seq in last.items()))
    wanted = JobEvent.objects.filter(ranges, kind__in=list(_PHASES))
    for event in wanted.order_by("job_id", "seq").values("job_id", "kind", "at", _REWARD, *_QUEUE):
        found[event["job_id"]].append(event)
    return found
