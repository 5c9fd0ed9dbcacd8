"""PostgreSQL's row-level security: the second wall between tenants, behind the relations that views go through.

Every table with a ``tenant`` has it enabled and forced, with one policy: a row is seen and written where its tenant is the one of the
setting ``marlaas.tenant``, or where that is ``*``. Unset, nothing is seen. The setting travels with each statement and ends with its
transaction (``set_config(…, true)``), so a pooled connection brings nothing of one request to the next, whatever happened in between.

``inside(tenant)`` is what a request of a tenant runs in; ``everything()``, the default, what the ingester, the worker, commands and
operators do. The wall stands against a query that somebody forgot to scope, raw SQL included; who can run arbitrary SQL of his own
choosing can also set the setting. SQLite has no such thing: it serves one machine and its tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.apps import apps
from django.db import connections, transaction
from django.db.models import ForeignKey

SETTING = "marlaas.tenant"
EVERYTHING = "*"
POLICY = "tenant_rows"
OPERATOR_ROLE = "marlaas_operator"
# Who may enter where is asked across tenants, by person or by a letter's secret, before a tenant is known.
OPEN = frozenset({"tenants_membership", "tenants_invitation"})

_scope: ContextVar[str] = ContextVar("tenant_rows", default=EVERYTHING)
# What reads or writes rows; definitions, SAVEPOINT and their like neither need a setting nor bear a second statement before them.
_QUERY = re.compile(r"\s*\(?\s*(SELECT|INSERT|UPDATE|DELETE|WITH|EXPLAIN|VALUES|TABLE|MERGE)\b", re.IGNORECASE)


@contextmanager
def inside(tenant_pk: int) -> Iterator[None]:
    """Only this tenant's rows exist."""
    token = _scope.set(str(int(tenant_pk)))
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def everything() -> Iterator[None]:
    """All tenants' rows, for what has to ask across them."""
    token = _scope.set(EVERYTHING)
    try:
        yield
    finally:
        _scope.reset(token)


def enter(tenant_pk: int) -> None:
    """As ``inside``, to the end of the block that one of both has opened: for a tenant that becomes known in mid-request."""
    _scope.set(str(int(tenant_pk)))


def current() -> str:
    return _scope.get()


def watch(sender: Any, connection: Any, **_: Any) -> None:
    """On each new connection: let every statement carry its setting."""
    if connection.vendor == "postgresql" and guard not in connection.execute_wrappers:
        connection.execute_wrappers.append(guard)


def guard(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """One round trip: the setting and the query are two statements of one message, and the second's result is the cursor's."""
    if not isinstance(sql, str) or not _QUERY.match(sql):
        return execute(sql, params, many, context)
    if many:
        return _each(execute, sql, params, context)
    result = execute(f"SELECT set_config('{SETTING}', '{_scope.get()}', true); {sql}", params, many, context)
    context["cursor"].cursor.nextset()
    return result


def _each(execute: Callable[..., Any], sql: str, params: Any, context: dict[str, Any]) -> Any:
    connection = context["connection"]
    with transaction.atomic(using=connection.alias):
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")  # the guard's setting lasts for the transaction
        return execute(sql, params, True, context)


def tables() -> list[str]:
    """Every table that is to have the wall: derived from the models, so that a new one cannot be forgotten."""
    return sorted({model._meta.db_table for model in apps.get_models(include_auto_created=True) if _has_tenant(model)} - OPEN)


def _has_tenant(model: Any) -> bool:
    return any(field.name == "tenant" and isinstance(field, ForeignKey) for field in model._meta.local_fields)


def after_migrate(sender: Any, using: str, **_: Any) -> None:
    """Runs once per app, and does nothing to a table whose wall stands. Only the tables' owner gets here with something to do."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        present = set(connection.introspection.table_names(cursor)) & set(tables())
        for table in sorted(present - standing(cursor)):
            _build(cursor, table)
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [OPERATOR_ROLE])
        if cursor.fetchone():
            for table in sorted(present - standing(cursor, "operator_reads")):
                cursor.execute(f'CREATE POLICY operator_reads ON "{table}" FOR SELECT TO {OPERATOR_ROLE} USING (true)')


def standing(cursor: Any, policy: str = POLICY) -> set[str]:
    """The tables whose security is enabled and forced, and that have this policy."""
    cursor.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_policy p ON p.polrelid = c.oid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = current_schema() AND c.relrowsecurity AND c.relforcerowsecurity AND p.polname = %s",
        [policy],
    )
    return {table for (table,) in cursor.fetchall()}


def _build(cursor: Any, table: str) -> None:
    # As subqueries they are asked once a query, not once a row.
    setting = f"(SELECT current_setting('{SETTING}', true))"
    mine = f"tenant_id = (SELECT nullif(nullif(current_setting('{SETTING}', true), '{EVERYTHING}'), '')::bigint)"
    rule = f"{setting} = '{EVERYTHING}' OR {mine}"
    cursor.execute(f'ALTER TABLE "{table}" ENABLE ROW LEVEL SECURITY')
    cursor.execute(f'ALTER TABLE "{table}" FORCE ROW LEVEL SECURITY')
    cursor.execute(f'DROP POLICY IF EXISTS {POLICY} ON "{table}"')
    cursor.execute(f'CREATE POLICY {POLICY} ON "{table}" USING ({rule}) WITH CHECK ({rule})')
