"""One run of some jobs under one regime, as it was seen from outside: what all figures are made of. Pure data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.bench.intervals import Interval
from engine.follow import JobView


@dataclass(frozen=True, kw_only=True)
class Run:
    """All moments are UTC epoch seconds.

    ``began``: before the first submission. ``submitted``: by job. ``sampling``: when the sampler held requests, None where that could not
    be watched. ``cut_at``: when the jobs that were still open were cancelled for want of time (None: all ran to their ends).
    ``one_at_a_time``: the regime admits a single job, so its throughput is counted over the whole run.
    """

    regime: str
    views: dict[str, JobView]
    began: float
    submitted: dict[str, float]
    sampling: list[Interval] | None = None
    cut_at: float | None = None
    one_at_a_time: bool = False
    sampler_before: dict[str, Any] = field(default_factory=dict)
    sampler_after: dict[str, Any] = field(default_factory=dict)

    @property
    def jobs(self) -> list[JobView]:
        return list(self.views.values())

    @property
    def steps(self) -> int:
        return sum(len(view.committed) for view in self.jobs)

    @property
    def steps_wanted(self) -> int:
        return sum(view.steps for view in self.jobs)

    @property
    def succeeded(self) -> bool:
        return all(view.state == "succeeded" for view in self.jobs)

    @property
    def last_commit(self) -> float:
        return max((commit for view in self.jobs for commit in view.commits), default=self.began)

    @property
    def first_end(self) -> float:
        """The last commit of the job that was done first; where none was, of all."""
        done = [view.commits[-1] for view in self.jobs if view.commits and len(view.commits) == view.steps]
        return min(done, default=self.last_commit)

    def spans(self, *phases: str) -> list[Interval]:
        """The named phases of all jobs."""
        return [interval for view in self.jobs for interval in spans(view, *phases)]


def spans(view: JobView, *phases: str) -> list[Interval]:
    return [(span["start"], span["end"]) for span in _spans(view) if span["phase"] in phases]


def _spans(view: JobView) -> Iterator[dict[str, Any]]:
    for data in view.committed:
        yield from data["spans"]
