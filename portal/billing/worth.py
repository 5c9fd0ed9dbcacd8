"""What a point of reward has cost: a job's cost so far, by the points that its reward gained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from statistics import fmean

from portal.jobs.models import Job

LEAST_GAIN = 0.01  # one point of a hundred: below that a price would say nothing
MEAN_OF = 3  # steps at either end, when there is no held-out reward
END = 50  # steps that are read at either end: among them that many have a reward, or nobody can say


@dataclass(frozen=True, kw_only=True, slots=True)
class Worth:
    """``gained``: in points, a hundredth of the reward's unit. ``held_out``: by held-out rows, else by the training reward."""

    gained: float
    held_out: bool
    micros_per_point: int | None


def worth(job: Job, cost_micros: int) -> Worth | None:
    """None while there is nothing to compare."""
    held_out = _held_out(job)
    ends = held_out or _trained(job)
    if ends is None:
        return None
    gain = ends[1] - ends[0]
    price = round(cost_micros / (gain * 100)) if gain >= LEAST_GAIN else None
    return Worth(gained=gain * 100, held_out=held_out is not None, micros_per_point=price)


def _held_out(job: Job) -> tuple[float, float] | None:
    """The first version's reward and the latest one's."""
    found = job.events.filter(kind="eval").order_by("seq").values_list("data__version", "data__reward_mean")
    known = [mean for _, mean in sorted(found) if isinstance(mean, int | float)]
    return (known[0], known[-1]) if len(known) > 1 else None


def _trained(job: Job) -> tuple[float, float] | None:
    """Of the first and the last steps that have a reward; None where these are not ``2 * MEAN_OF`` different ones."""
    steps = job.events.filter(kind="step").values_list("seq", "data__rollout__reward_mean")
    first, last = _graded(steps.order_by("seq")[:END]), _graded(steps.order_by("-seq")[:END])
    if len(first) < MEAN_OF or len(last) < MEAN_OF or max(first) >= min(last):
        return None
    return fmean(first.values()), fmean(last.values())


def _graded(steps: Iterable[tuple[int, float | None]]) -> dict[int, float]:
    """The first ``MEAN_OF`` of them that have a reward: {number: reward}."""
    return dict(islice(((seq, mean) for seq, mean in steps if isinstance(mean, int | float)), MEAN_OF))
