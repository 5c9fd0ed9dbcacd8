"""The role that the portal has in production: it owns nothing and is no superuser, so every wall of the database stands before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

ROLE = "marlaas_app"


@contextmanager
def worn() -> Iterator[None]:
    """On PostgreSQL, every connection from here on is this role; the tables' owner made them. On SQLite nothing changes."""
    from django.db import connection

    options = connection.settings_dict["OPTIONS"]
    if connection.vendor != "postgresql" or "options" in options:
        yield
        return
    _make()
    options["options"] = f"-c role={ROLE}"
    _anew()
    try:
        yield
    finally:
        del options["options"]
        _anew()


@contextmanager
def taken_off() -> Iterator[None]:
    """The owner again, for what a deploy does."""
    from django.db import connection

    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SET ROLE NONE")
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"SET ROLE {ROLE}")


def _make() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE])
        if not cursor.fetchone():
            cursor.execute(f"CREATE ROLE {ROLE} NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE")
        cursor.execute(f"GRANT USAGE ON SCHEMA public TO {ROLE}")
        # TRUNCATE too: it is how transactional tests clear up after themselves.
        cursor.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA public TO {ROLE}")
        cursor.execute(f"GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA public TO {ROLE}")


def _anew() -> None:
    from django.db import connection

    connection.close()
    connection.close_pool()
