"""The database's own wall between tenants: a row may only point at rows of its own tenant.

Derived from the models, so that nobody can forget one: for each foreign key between two tenant-owned tables there is a second, composite
one over (tenant, key). PostgreSQL gets real foreign keys. SQLite cannot add a constraint to a table and drops what Django does not know
whenever a migration rebuilds one, so it gets triggers, put back after every migrate, and taken away before: it rebuilds no table that a
trigger of another one names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import connections, models


@dataclass(frozen=True, kw_only=True, slots=True)
class CompositeKey:
    table: str
    column: str
    target: str

    @property
    def name(self) -> str:
        return f"wall_{self.table}_{self.column}"[:60]


def composite_keys() -> Iterator[CompositeKey]:
    for model in apps.get_models():
        if not _owned(model):
            continue
        for field in model._meta.local_fields:
            if isinstance(field, models.ForeignKey) and _owned(field.related_model):
                yield CompositeKey(table=model._meta.db_table, column=field.column, target=field.related_model._meta.db_table)


def _owned(model: Any) -> bool:
    return any(f.name == "tenant" and isinstance(f, models.ForeignKey) for f in model._meta.local_fields)


def before_migrate(sender: Any, using: str, plan: Any = (), **_: Any) -> None:
    """Runs once per app; only where there is something to migrate."""
    connection = connections[using]
    if plan and connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'wall\\_%%' ESCAPE '\\'")
            for (name,) in cursor.fetchall():
                cursor.execute(f'DROP TRIGGER "{name}"')


def after_migrate(sender: Any, using: str, **_: Any) -> None:
    """Runs once per app and does nothing until all tables of a key exist."""
    connection = connections[using]
    tables = set(connection.introspection.table_names())
    keys = [key for key in composite_keys() if {key.table, key.target} <= tables]
    build = {"postgresql": _foreign_keys, "sqlite": _triggers}[connection.vendor]
    with connection.cursor() as cursor:
        build(cursor, keys)


def _foreign_keys(cursor: Any, keys: list[CompositeKey]) -> None:
    cursor.execute("SELECT conname FROM pg_constraint WHERE conname LIKE 'wall\\_%%'")
    present = {name for (name,) in cursor.fetchall()}
    for key in keys:
        if key.name not in present:
            cursor.execute(
                f'ALTER TABLE "{key.table}" ADD CONSTRAINT "{key.name}" FOREIGN KEY (tenant_id, "{key.column}") '
                f'REFERENCES "{key.target}" (tenant_id, id) DEFERRABLE INITIALLY DEFERRED'
            )


def _triggers(cursor: Any, keys: list[CompositeKey]) -> None:
    for key in keys:
        for moment in ("INSERT", f'UPDATE OF tenant_id, "{key.column}"'):
            name = f"{key.name}_{moment[:6].lower()}"
            cursor.execute(
                f'CREATE TRIGGER IF NOT EXISTS "{name}" BEFORE {moment} ON "{key.table}" WHEN NEW."{key.column}" IS NOT NULL '
                f'AND NOT EXISTS (SELECT 1 FROM "{key.target}" WHERE tenant_id = NEW.tenant_id AND id = NEW."{key.column}") '
                f"BEGIN SELECT RAISE(ABORT, 'FOREIGN KEY constraint failed: {key.name}'); END"
            )
