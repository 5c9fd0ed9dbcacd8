"""Jobs as lists show them: with what each is doing now and its last rewards. Three queries for any number of rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from portal.jobs.models import Job, JobEvent

SPARK_POINTS = 40
# What the page calls the time after an event of this kind.
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

    @property
    def reward(self) -> float | None:
        """The mean of the last three steps: one step's reward is noise."""
        last = self.rewards[-3:]
        return sum(last) / len(last) if last else None


def rows(jobs: Iterable[Job]) -> list[Row]:
    jobs = list(jobs)
    steps = _last_steps([job.pk for job in jobs])
    phases = _phases([job.pk for job in jobs if job.is_open])
    return [_row(job, steps[job.pk], phases.get(job.pk, "")) for job in jobs]


def _row(job: Job, steps: list[tuple[datetime, float]], phase: str) -> Row:
    return Row(
        job=job,
        rewards=[reward for _, reward in steps],
        phase=phase if job.state != "paused" else "",
        seconds_left=_seconds_left(job, steps),
    )


def _seconds_left(job: Job, steps: list[tuple[datetime, float]]) -> float | None:
    recent = steps[-9:]
    if job.state != "running" or len(recent) < 2:
        return None
    pace = (recent[-1][0] - recent[0][0]).total_seconds() / (len(recent) - 1)
    return pace * (job.steps - job.version)


def _last_steps(ids: list[int]) -> dict[int, list[tuple[datetime, float]]]:
    """Per job the (time, mean reward) of its last steps, oldest first."""
    found: dict[int, list[tuple[datetime, float]]] = defaultdict(list)
    for event in _newest(ids, SPARK_POINTS, kind="step"):
        reward = event["data"].get("rollout", {}).get("reward_mean")
        if isinstance(reward, int | float):
            found[event["job_id"]].append((event["at"], reward))
    return found


def _phases(ids: list[int]) -> dict[int, str]:
    return {event["job_id"]: _PHASES[event["kind"]] for event in _newest(ids, 1, kind__in=list(_PHASES))}


def _newest(ids: list[int], limit: int, **which: Any) -> Iterable[dict[str, Any]]:
    """The ``limit`` newest events of each job, oldest first."""
    place = Window(RowNumber(), partition_by=F("job_id"), order_by=F("seq").desc())
    events = JobEvent.objects.filter(job_id__in=ids, **which).annotate(place=place).filter(place__lte=limit)
    return events.order_by("job_id", "seq").values("job_id", "seq", "kind", "at", "data")
