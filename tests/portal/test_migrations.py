"""A migration runs before the new processes start and beside the old ones, which must go on reading and writing meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

OURS = {"accounts", "api", "billing", "console", "datasets", "jobs", "notices", "openai", "rewards", "tenants"}
# Made before there was a release that anybody could have been running: those that an old process would have stumbled over.
BEFORE_ANY_RELEASE = {
    *{("billing", "0002_stripe"), ("billing", "0003_spending_limits"), ("billing", "0005_holds_of_everything")},
    *{("datasets", "0002_uploads_and_versions"), ("tenants", "0002_accounts")},
}
GOES_AWAY = (migrations.RemoveField, migrations.RenameField, migrations.DeleteModel, migrations.RenameModel)


def stumbled_over(operations: list[Operation]) -> Iterator[str]:
    """What of these a process that does not know them cannot live with."""
    fresh = {operation.name.lower() for operation in operations if isinstance(operation, migrations.CreateModel)}
    for operation in operations:
        model = getattr(operation, "model_name_lower", "")
        if isinstance(operation, GOES_AWAY):
            yield f"{operation.describe()}: old processes still ask for it; stop using it in one release, take it away in the next"
        elif isinstance(operation, migrations.AddField) and model not in fresh and not _may_be_left_out(operation.field):
            yield f"{operation.describe()}: old processes insert rows without it; give it db_default, or let it be null"


def _may_be_left_out(field: models.Field) -> bool:
    return field.null or field.has_db_default() or field.many_to_many


def all_of_ours() -> list[migrations.Migration]:
    loader = MigrationLoader(None)
    return [migration for (app, _), migration in sorted(loader.disk_migrations.items()) if app in OURS]


@pytest.mark.parametrize("migration", all_of_ours(), ids=str)
def test_old_processes_live_with_it(migration: migrations.Migration) -> None:
    if (migration.app_label, migration.name) not in BEFORE_ANY_RELEASE:
        assert list(stumbled_over(migration.operations)) == []


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (migrations.AddField("Job", "colour", models.CharField(max_length=9, default="")), "db_default"),
        (migrations.RemoveField("Job", "name"), "in the next"),
        (migrations.DeleteModel("Job"), "in the next"),
    ],
)
def test_what_they_would_stumble_over_is_found(operation: Operation, words: str) -> None:
    [problem] = stumbled_over([operation])
    assert words in problem


def test_a_column_that_they_need_not_fill_is_none() -> None:
    fields = (models.CharField(max_length=9, db_default=""), models.IntegerField(null=True))
    assert list(stumbled_over([migrations.AddField("Job", "colour", field) for field in fields])) == []
