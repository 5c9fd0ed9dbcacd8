"""``python -m tests.load.histories JOB --steps N --jobs N --events N``: long histories in the database that the environment names.

``JOB`` gets ``--steps`` steps with all their events and ends; its organisation then gets ended jobs like it, to ``--jobs`` in all, each
with its first ``--events`` events: enough for a page to stumble over, made by the database itself.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import django


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("job")
    for name in ("steps", "jobs", "events"):
        cli.add_argument(f"--{name}", type=int, required=True)
    given = cli.parse_args()
    django.setup()
    Histories(job=given.job, steps=given.steps, jobs=given.jobs, events=given.events).write()


@dataclass(frozen=True, kw_only=True)
class Histories:
    """Needs ``django.setup()``."""

    job: str
    steps: int
    jobs: int
    events: int

    def write(self) -> None:
        from portal.jobs.models import Job, State
        from tests.portal.history import play

        long = Job.objects.get(public_id=self.job)
        Job.objects.filter(pk=long.pk).update(spec={**long.spec, "train": {**long.spec["train"], "steps": self.steps}})
        long.refresh_from_db()
        play(long, self.steps)
        Job.objects.filter(pk=long.pk).update(state=State.SUCCEEDED, ended_at=long.submitted_at)
        self._copy(long)

    def _copy(self, long: Any) -> None:
        from django.db import connection

        from portal.jobs.models import Job, JobEvent, State

        shared = ("tenant_id", "dataset_id", "reward_id", "spec", "submitted_at", "created_by_id", "engine")
        values = {name: getattr(long, name) for name in shared}
        version = long.events.filter(seq__lte=self.events, kind="step").count()
        values |= {"state": State.SUCCEEDED, "version": version, "last_seq": self.events, "ended_at": long.submitted_at}
        rows = (Job(name=f"Like it {number}", **values) for number in range(self.jobs - 1))
        Job.objects.bulk_create(rows, batch_size=500)
        table, jobs = JobEvent._meta.db_table, Job._meta.db_table
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {table} (tenant_id, job_id, seq, kind, at, data)"
                f" SELECT e.tenant_id, j.id, e.seq, e.kind, e.at, e.data FROM {table} e"
                f" JOIN {jobs} j ON j.tenant_id = e.tenant_id AND j.id <> e.job_id WHERE e.job_id = %s AND e.seq <= %s",
                [long.pk, self.events],
            )


if __name__ == "__main__":
    main()
