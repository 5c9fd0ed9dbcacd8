"""How a test that commits leaves the database: as its migrations made it.

Django's own way empties every table and then does all that follows a migration: on PostgreSQL a quarter of a second of this process and as
much of the server's, for each such test. Here only tables with rows are emptied, and only the rows of a fresh installation are made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# What a migration writes there is the same after every one.
KEPT = frozenset({"django_migrations", "django_content_type", "auth_permission"})


@contextmanager
def installed() -> Iterator[None]:
    """Every ``TransactionTestCase`` ends in this way from here on, and so does each test of pytest-django that commits."""
    from django.test import TransactionTestCase

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda case: sweep())
        yield


def sweep() -> None:
    from django.db import connection, transaction

    from portal.billing import setup

    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # The tables' owner, for this transaction: no key is looked up, and nothing refuses that entries of the ledger go.
            cursor.execute("SET LOCAL ROLE NONE")
            cursor.execute("SET LOCAL session_replication_role = replica")
        for table in _with_rows(connection, cursor):
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(table)}")
    setup.default_plan()
    setup.default_prices()


def _with_rows(connection: Any, cursor: Any) -> list[str]:
    tables = set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - KEPT
    asked = (f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {connection.ops.quote_name(table)})" for table in sorted(tables))
    cursor.execute(" UNION ALL ".join(asked))
    return [table for (table,) in cursor.fetchall()]
