"""Jobs as lists show them: with what each is doing now and its last rewards. One query for all rows, bounded however long a job has run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from portal.jobs import phases, reach, standstill
from portal.jobs.models import Job, State
from portal.jobs.standstill import Standstill

SPARK_POINTS = 40


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
    standstill: Standstill | None = None

    @property
    def reward(self) -> float | None:
        """The mean of the last three steps: one step's reward is noise."""
        last = self.rewards[-3:]
        return sum(last) / len(last) if last else None


def rows(jobs: Iterable[Job]) -> list[Row]:
    jobs = list(jobs)
    newest = phases.newest({job.pk: job.last_seq for job in jobs})
    away, out = reach.away(jobs), reach.parts_out(jobs)
    return [_row(job, newest[job.pk], away.get(job.pk), out.get(job.pk)) for job in jobs]


def away_since(shown: Iterable[Row]) -> datetime | None:
    """Since when an engine of some of these jobs cannot be reached: the earliest."""
    return min((row.engine_away_since for row in shown if row.engine_away_since), default=None)


def standing_still(shown: Iterable[Row]) -> list[Standstill]:
    """What some of these jobs wait for: each part once, with the earliest moment."""
    earliest: dict[str, Standstill] = {}
    for found in filter(None, (row.standstill for row in shown)):
        known = earliest.setdefault(found.part, found)
        earliest[found.part] = min(known, found, key=lambda one: one.since)
    return list(earliest.values())


def _row(job: Job, events: list[dict[str, Any]], away: datetime | None, out: dict[str, datetime] | None) -> Row:
    """``events``: the job's newest, oldest first. What they foretell is not told while its engine or a part of that stands still.

    ``out``: see ``reach.parts_out``.
    """
    steps = [event for event in events if isinstance(event[phases.REWARD], int | float)][-SPARK_POINTS:]
    last = events[-1] if events else None
    moves = last is not None and job.is_open and job.state != State.PAUSED
    phase = phases.WORDS[last["kind"]] if moves else ""
    halt = standstill.of(job, last, out)
    queued = last if moves and last["kind"] == "waiting" and not away else {}
    return Row(
        job=job,
        rewards=[step[phases.REWARD] for step in steps],
        phase=phase if not away or not phase else f"{phase} when it was last heard",
        seconds_left=None if away or halt else _seconds_left(job, steps),
        position=queued.get("data__position"),
        begins_at=None if halt else _later(queued.get("at"), queued.get("data__next_seconds")),
        heard_at=last and last["at"],
        engine_away_since=away,
        standstill=halt,
    )


def _later(at: datetime | None, seconds: float | None) -> datetime | None:
    return None if at is None or not isinstance(seconds, int | float) else at + timedelta(seconds=seconds)


def _seconds_left(job: Job, steps: list[dict[str, Any]]) -> float | None:
    recent = steps[-9:]
    if job.state != State.RUNNING or len(recent) < 2:
        return None
    pace = (recent[-1]["at"] - recent[0]["at"]).total_seconds() / (len(recent) - 1)
    return pace * (job.steps - job.version)
