"""At a million events of ten thousand jobs every page's question goes by an index, also behind the wall between tenants' rows.

The rows are made by the database itself and the plans are asked of it, so nothing here depends on how fast the machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.billing.models import Entry
from portal.console.recent import Recent
from portal.jobs import overview, series
from portal.jobs.evaluation import summary
from portal.jobs.listing import rows
from portal.jobs.live import events_after
from portal.jobs.models import JobEvent
from tenants import walls_rows
from tests.portal.world import World
from tests.support import app_role

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]
JOBS, EVENTS = 10_000, 100
LARGE = ("jobs_jobevent", "jobs_job")
_JOBS = """
INSERT INTO jobs_job (tenant_id, public_id, name, dataset_id, reward_id, spec, state, state_reason, attribution, version, last_seq, engine,
  submitted_at, created_by_id)
SELECT tenant_id, 'job_filled' || n || '_' || tenant_id, 'job ' || n, dataset_id, reward_id, spec, 'succeeded', '', '', %s, %s, '',
  now() - n * interval '1 minute', created_by_id
FROM jobs_job CROSS JOIN generate_series(1, %s) n
"""
_EVENTS = """
INSERT INTO jobs_jobevent (tenant_id, job_id, seq, kind, at, data)
SELECT j.tenant_id, j.id, n, CASE WHEN n = 50 THEN 'eval' WHEN mod(n, 4) = 0 THEN 'step' ELSE 'rollout_ready' END,
  now() - (%s - n) * interval '1 second',
  '{"version": 1, "rows": 8, "reward_mean": 0.5, "invalid": 0, "temperature": 0}'
FROM jobs_job j CROSS JOIN generate_series(1, %s) n
"""


@pytest.fixture
def big(world: World) -> Iterator[World]:
    """Two organisations with half of it each."""
    for user in (world.alice, world.charlie):
        world.job(user)
    with app_role.taken_off(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # the rows come from sound ones: their keys need no looking up
        cursor.execute(_JOBS, [EVENTS // 4, EVENTS, JOBS // 2 - 1])
        cursor.execute(_EVENTS, [EVENTS, EVENTS])
        cursor.execute("SET LOCAL session_replication_role = origin")
        cursor.execute("ANALYZE jobs_jobevent, jobs_job")
    yield world


def plans(ask: Callable[[], Any]) -> str:
    """How PostgreSQL goes about every query that ``ask`` makes."""
    with CaptureQueriesContext(connection) as captured:
        ask()
    said = []
    for query in captured.captured_queries:
        sql = query["sql"].partition("; ")[2]  # without the setting that travels with it
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {sql}")
            said += [line for (line,) in cursor.fetchall()]
    return "\n".join(said)


def questions(big: World) -> dict[str, Callable[[], Any]]:
    job = big.sums.jobs.order_by("-id")[0]
    recent = Recent()
    now = datetime.now(UTC)
    return {
        "the run page's events": lambda: events_after(job, EVENTS // 2, 500),
        "the run page's figures": lambda: series.segments(job, until_seq=EVENTS, exact_steps=5000),
        "the run page's evaluations": lambda: summary(job),
        "the run page's phases": lambda: overview.overview(job),
        "the list of jobs": lambda: rows(big.sums.jobs.all()[:25]),
        "a job by its id": lambda: big.sums.jobs.get(public_id=job.public_id),
        "what a job cost": lambda: list(Entry.objects.filter(tenant=job.tenant_id, source=job.public_id, step=1)),
        "the operators' window": lambda: recent.steps(now),
        "the window's next look": lambda: recent.steps(now + timedelta(seconds=2)),
    }


def test_no_page_s_question_reads_a_whole_table(big: World) -> None:
    for scope in (walls_rows.everything, lambda: walls_rows.inside(big.sums.pk)):
        for name, ask in questions(big).items():
            with scope():
                plan = plans(ask)
            # The window is of thousands of jobs' steps at its first look: the jobs may be read for it, the events not.
            large = LARGE[:1] if "window" in name else LARGE
            assert not [table for table in large if f"Seq Scan on {table}" in plan], f"{name}:\n{plan}"


def test_the_plans_would_tell_of_a_table_that_is_read_whole(big: World) -> None:
    assert "Seq Scan on jobs_jobevent" in plans(lambda: JobEvent.objects.filter(at__year=1999).count())
