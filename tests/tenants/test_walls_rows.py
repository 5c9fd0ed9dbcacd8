"""Row-level security: raw SQL of one tenant sees nothing of another, whatever was forgotten and whatever the pool brings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, models, transaction
from django.test import RequestFactory

from portal.console import viewing
from portal.datasets.models import Dataset
from portal.jobs.models import Job
from tenants import walls_rows
from tests.portal.world import World


def count(sql: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def test_every_table_with_a_tenant_is_behind_the_wall_or_named_as_open(db: None) -> None:
    """A model that somebody adds tomorrow is in here by itself; what is left out has to be named, with its reason, in ``OPEN``."""
    owned = {m._meta.db_table for m in apps.get_models(include_auto_created=True) if any(f.name == "tenant" for f in m._meta.local_fields)}
    assert owned == set(walls_rows.tables()) | walls_rows.OPEN
    assert len(owned) > 15


def test_no_table_reaches_a_tenant_under_another_name(db: None) -> None:
    from tenants.models import Tenant

    hidden = [
        f"{model._meta.db_table}.{field.name}"
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.local_fields
        if isinstance(field, models.ForeignKey) and field.related_model is Tenant and field.name != "tenant"
    ]
    assert hidden == []


def test_the_scope_is_the_requests_tenant_and_ends_with_it(world: World) -> None:
    request = RequestFactory().get("/jobs/")
    request.tenant = world.sums
    with viewing.rows_of(request):
        assert walls_rows.current() == str(world.sums.pk)
    assert walls_rows.current() == walls_rows.EVERYTHING


@pytest.mark.parametrize("path", ["/console/", "/admin/jobs/job/"])
def test_operators_see_all_rows_under_their_paths(world: World, path: str) -> None:
    request = RequestFactory().get(path)
    request.tenant = world.sums
    with viewing.rows_of(request):
        assert walls_rows.current() == walls_rows.EVERYTHING


def test_a_tenant_that_becomes_known_late_is_left_at_the_requests_end() -> None:
    with walls_rows.everything():
        walls_rows.enter(7)
        assert walls_rows.current() == "7"
    assert walls_rows.current() == walls_rows.EVERYTHING


def test_a_broken_request_leaves_no_scope_behind() -> None:
    with pytest.raises(RuntimeError), walls_rows.inside(7):
        raise RuntimeError
    assert walls_rows.current() == walls_rows.EVERYTHING


@pytest.mark.parametrize("sql", ["SAVEPOINT x", "CREATE TABLE selected (id int)", "SET ROLE x", "TRUNCATE jobs_job", "selection"])
def test_only_queries_carry_a_setting(sql: str) -> None:
    told: list[Any] = []
    walls_rows.guard(lambda *given: told.append(given[0]), sql, None, False, {})
    assert told == [sql]


@pytest.fixture
def postgres(db: None) -> Iterator[None]:
    """The rest of this file is about PostgreSQL; on SQLite there is nothing to hold, and a test says so by passing at once."""
    yield


def on_postgres() -> bool:
    return connection.vendor == "postgresql"


def test_the_wall_stands_before_every_table(postgres: None) -> None:
    if on_postgres():
        with connection.cursor() as cursor:
            assert walls_rows.standing(cursor) == set(walls_rows.tables())


def test_the_suite_runs_as_a_role_that_the_wall_holds(postgres: None) -> None:
    if on_postgres():
        assert count("SELECT count(*) FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND NOT rolbypassrls") == 1
        assert count("SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tableowner = current_user") == 0


def test_raw_sql_of_one_tenant_sees_nothing_of_another(world: World) -> None:
    world.job(), world.job(world.charlie)
    if not on_postgres():
        return
    for table in ("jobs_job", "datasets_dataset", "rewards_reward", "jobs_jobsubmission", "billing_entry"):
        with walls_rows.inside(world.sums.pk):
            mine = count(f"SELECT count(*) FROM {table}")
            assert mine and count(f"SELECT count(*) FROM {table} WHERE tenant_id <> {world.sums.pk}") == 0
        assert count(f"SELECT count(*) FROM {table}") > mine


def test_a_forgotten_filter_finds_only_ones_own(world: World) -> None:
    hers, his = world.job(), world.job(world.charlie)
    if on_postgres():
        with walls_rows.inside(world.sums.pk):
            assert list(Job.objects.all()) == [hers]
            assert not Job.objects.filter(pk=his.pk).update(name="mine now")
            assert not Job.objects.filter(pk=his.pk).exists()
        his.refresh_from_db()
        assert his.name != "mine now"


def test_a_row_is_not_written_for_another_tenant(world: World) -> None:
    if on_postgres():
        with pytest.raises(DatabaseError, match="row-level security"), transaction.atomic(), walls_rows.inside(world.sums.pk):
            Dataset.objects.create(tenant=world.other, name="smuggled")


def test_many_rows_at_once_are_held_too(world: World) -> None:
    hers, his = world.job(), world.job(world.charlie)
    if on_postgres():
        with walls_rows.inside(world.sums.pk), connection.cursor() as cursor:
            cursor.executemany("UPDATE jobs_job SET name = %s WHERE id = %s", [("a", hers.pk), ("b", his.pk)])
        assert set(Job.objects.values_list("name", flat=True)) & {"a", "b"} == {"a"}


@pytest.mark.django_db(transaction=True)
def test_a_pooled_connection_brings_nothing_to_the_next_request(world: World) -> None:
    """The same server process, one request after the other: the setting is gone, also when the first one broke in mid-transaction."""
    world.job()
    if not on_postgres():
        return
    first = count("SELECT pg_backend_pid()")
    with pytest.raises(RuntimeError), walls_rows.inside(world.sums.pk), transaction.atomic():
        assert count("SELECT count(*) FROM jobs_job") == 1
        raise RuntimeError
    for _ in range(50):  # back into the pool, until the same one comes again
        connection.close()
        if count("SELECT pg_backend_pid()") == first:
            break
    else:
        raise AssertionError("the pool did not give this connection again")
    left = connection.connection.execute("SELECT coalesce(current_setting('marlaas.tenant', true), '')").fetchone()
    rows = connection.connection.execute("SELECT count(*) FROM jobs_job").fetchone()
    assert (left, rows) == (("",), (0,))  # beside the guard, nothing is set and nothing is seen


def test_within_one_transaction_the_scope_follows_the_code(world: World) -> None:
    world.job(), world.job(world.charlie)
    if on_postgres():
        with transaction.atomic():
            with walls_rows.inside(world.other.pk):
                assert count("SELECT count(*) FROM jobs_job") == 1
            assert count("SELECT count(*) FROM jobs_job") == 2


def test_foreign_keys_do_not_reach_around_the_wall(world: World) -> None:
    """PostgreSQL checks foreign keys past the policies, so the composite keys stand beside them."""
    foreign = world.dataset(world.charlie)
    job = world.job()
    with pytest.raises(DatabaseError), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(dataset=foreign)
        connection.check_constraints()
        if on_postgres():
            with connection.cursor() as cursor:
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
