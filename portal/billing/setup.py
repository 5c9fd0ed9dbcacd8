"""What every installation has from its first migration on: a plan, a price list, and a database that refuses to change the ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import connections

from portal.billing.models import Kind, Plan, Price

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEFAULT_PLAN = "standard"
# Wide enough that nobody meets them by accident; an operator narrows them or gives a tenant limits of its own.
DEFAULT_LIMITS = {"running_jobs": 64, "queued_jobs": 1000, "tokens_per_month": 10**10, "storage_bytes": 10**12}
# Micro-units for a million tokens. Storage is counted against the plan and costs nothing until an operator prices it.
DEFAULT_PRICES = {
    Kind.PREFILL: 100_000,
    Kind.CACHED_PREFILL: 25_000,
    Kind.SAMPLED: 400_000,
    Kind.TRAINED: 600_000,
    Kind.JUDGE: 200_000,
    Kind.STORAGE: 0,
}
_REFUSAL = "the ledger is append-only: add a reversal"


def after_migrate(sender: Any, using: str, **_: Any) -> None:
    """Runs once per app and does nothing until the tables exist. Idempotent: what an operator has changed stays."""
    connection = connections[using]
    if not {"billing_entry", "billing_price", "billing_plan"} <= set(connection.introspection.table_names()):
        return
    default_plan()
    default_prices()
    with connection.cursor() as cursor:
        {"postgresql": _postgres_wall, "sqlite": _sqlite_wall}[connection.vendor](cursor)


def default_plan() -> Plan:
    plan: Plan = Plan.objects.get_or_create(key=DEFAULT_PLAN, defaults={"name": "Standard", **DEFAULT_LIMITS})[0]
    return plan


def default_prices() -> None:
    for kind, micros in DEFAULT_PRICES.items():
        Price.objects.get_or_create(
            model="", kind=kind, effective_from=EPOCH, defaults={"micros_per_million": micros, "set_by": "installation"}
        )


def _postgres_wall(cursor: Any) -> None:
    cursor.execute("SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'append_only'")
    present = {table for (table,) in cursor.fetchall()}
    if {"billing_entry", "billing_price"} <= present:
        return  # only the tables' owner may define anything
    cursor.execute(
        "CREATE OR REPLACE FUNCTION billing_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    for table in {"billing_entry", "billing_price"} - present:
        cursor.execute(f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION billing_append_only()")


def _sqlite_wall(cursor: Any) -> None:
    """SQLite has no TRUNCATE: a database is emptied by DELETE, so only the model and the missing permission stand before that."""
    for table in ("billing_entry", "billing_price"):
        cursor.execute(
            f"CREATE TRIGGER IF NOT EXISTS {table}_append_only BEFORE UPDATE ON {table} BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
        )
