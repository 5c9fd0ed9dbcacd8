"""What a page asks of the database does not grow with history: counted, never timed."""

from __future__ import annotations

from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.jobs.listing import rows
from portal.jobs.models import Job, JobEvent
from portal.jobs.phases import EVENTS_READ
from tests.portal.world import NOW, World


def long_run(job: Job, events: int) -> None:
    """A job with ``events`` steps on record."""
    step = {"rollout": {"reward_mean": 0.5}}
    fresh = (JobEvent(tenant=job.tenant, job=job, seq=seq, kind="step", at=NOW, data=step) for seq in range(1, events + 1))
    JobEvent.objects.bulk_create(fresh, batch_size=500)
    Job.objects.filter(pk=job.pk).update(state="running", version=events, last_seq=events)


def test_the_list_reads_only_the_newest_events_of_a_long_job(world: World) -> None:
    long_run(world.job(), events=5 * EVENTS_READ)
    with CaptureQueriesContext(connection) as queries:
        [row] = rows(Job.objects.all())
    assert len(queries) == 2
    assert len(row.rewards) == 40


def test_history_comes_in_pages_of_bounded_size(world: World) -> None:
    job = world.job()
    long_run(job, events=1200)
    client = world.client(world.alice)
    sizes = []
    after, more = 0, True
    while more:
        page = client.get(f"/jobs/{job.public_id}/events/?after={after}").json()
        sizes.append(len(page["events"]))
        after, more = page["last"], page["more"]
    assert sizes == [500, 500, 200]
