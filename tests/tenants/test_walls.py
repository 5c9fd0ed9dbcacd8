from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import IntegrityError, connection, models, transaction

from portal.jobs.models import Job, JobEvent
from tenants import walls
from tests.portal.world import NOW, World
from tests.support import app_role


def refuses(change) -> bool:
    """Whether the database itself refuses ``change``, at the latest when its constraints are checked."""
    try:
        with transaction.atomic():
            change()
            connection.check_constraints()
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except IntegrityError:
        return True
    return False


def test_the_database_refuses_a_job_on_another_tenants_dataset(world: World) -> None:
    job, foreign = world.job(), world.dataset(world.charlie)
    assert refuses(lambda: Job.objects.filter(pk=job.pk).update(dataset=foreign))


def test_the_database_refuses_to_create_a_job_across_tenants(world: World) -> None:
    job = world.job()
    stolen = Job(tenant=world.other, name="x", dataset=job.dataset, reward=job.reward, spec=job.spec, submitted_at=NOW)
    assert refuses(stolen.save)


def test_the_database_refuses_an_event_under_another_tenant(world: World) -> None:
    job = world.job()
    assert refuses(JobEvent(tenant=world.other, job=job, seq=1, kind="x", at=NOW).save)


def test_the_database_refuses_to_move_a_job_to_another_tenant(world: World) -> None:
    job = world.job()
    assert refuses(lambda: Job.objects.filter(pk=job.pk).update(tenant=world.other))


def test_own_rows_are_taken(world: World) -> None:
    job, other = world.job(), world.dataset()
    assert not refuses(lambda: Job.objects.filter(pk=job.pk).update(dataset=other))


def test_every_key_between_tenants_tables_has_its_wall(db: None) -> None:
    found = {(key.table, key.column) for key in walls.composite_keys()}
    assert found >= {
        ("jobs_job", "dataset_id"),
        ("jobs_job", "reward_id"),
        ("jobs_jobsubmission", "job_id"),
        ("jobs_jobcommand", "job_id"),
        ("jobs_jobevent", "job_id"),
        ("rewards_sheet", "reward_id"),
        ("rewards_labrun", "reward_id"),
        ("rewards_labrun", "sheet_id"),
        ("rewards_labcase", "run_id"),
        ("rewards_probe", "dataset_id"),
        ("rewards_probe", "reward_id"),
        ("billing_entry", "reverses_id"),
        ("billing_hold", "job_id"),
    }


def test_every_tenants_table_has_the_unique_pair_that_walls_lean_on(db: None) -> None:
    owned = [model for model in apps.get_models() if walls._owned(model)]
    assert len(owned) >= 8
    for model in owned:
        if model._meta.get_field("tenant").null:
            continue  # what may belong to nobody is pointed at by nobody
        pairs = [set(c.fields) for c in model._meta.constraints if isinstance(c, models.UniqueConstraint)]
        assert {"tenant", "id"} in pairs, model


def test_migrating_again_changes_nothing(db: None) -> None:
    with app_role.taken_off():
        call_command("migrate", verbosity=0)


BACK_AND_FORTH = """
import django
django.setup()
from django.core.management import call_command
from django.db import connection
def walls():
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name")
        return cursor.fetchall()
call_command("migrate", verbosity=0)
first = walls()
for older in (("rewards", "0004"), ()):
    call_command("migrate", *older, verbosity=0)
    assert walls() == first, older
print(len(first))
"""


def test_an_installation_with_walls_takes_a_migration_that_rebuilds_a_table_they_name(tmp_path: Path) -> None:
    where = {
        "MARLAAS_STATE": str(tmp_path),
        "DATABASE_URL": f"sqlite:///{tmp_path}/db.sqlite3",
        "DJANGO_SETTINGS_MODULE": "portal.settings",
    }
    command = [sys.executable, "-c", BACK_AND_FORTH]
    done = subprocess.run(command, env={**os.environ, **where}, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 20


@pytest.mark.parametrize("key", list(walls.composite_keys()), ids=lambda key: key.name)
def test_the_wall_stands_in_the_database(db: None, key: walls.CompositeKey) -> None:
    query = {
        "sqlite": "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name IN (%s || '_insert', %s || '_update')",
        "postgresql": "SELECT 2 * count(*) FROM pg_constraint WHERE contype = 'f' AND conname IN (%s, %s)",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(query, [key.name, key.name])
        assert cursor.fetchone() == (2,)
