"""What jobs are doing, by their newest events: one query for many jobs, bounded however long each has run."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q

from portal.jobs.models import JobEvent

# Only the newest events of each job are read: a step makes about four, so these hold the last rewards and the phase.
EVENTS_READ = 300
REWARD = "data__rollout__reward_mean"
_QUEUE = ("data__code", "data__position", "data__next_seconds")
# What the page calls the time after an event of this kind.
WORDS = {
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


def newest(last: dict[int, int]) -> dict[int, list[dict[str, Any]]]:
    """Per job (its key → the number of its last event) the newest events that tell of a phase, with the reward where they are steps."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    if not last:
        return found
    # One range of the index for each job; compared with a column of the jobs instead, the database would read all of those.
    ranges = reduce(or_, (Q(job_id=job, seq__gt=seq - EVENTS_READ) for job, seq in last.items()))
    wanted = JobEvent.objects.filter(ranges, kind__in=list(WORDS))
    for event in wanted.order_by("job_id", "seq").values("job_id", "kind", "at", REWARD, *_QUEUE):
        found[event["job_id"]].append(event)
    return found
