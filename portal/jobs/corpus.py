"""A job's search corpus: one of the tenant's datasets, named by its id, becomes the blob that the engine searches."""

from __future__ import annotations

from typing import Any

from tenants.models import Tenant

FIELD = "environment.search.source"
COLUMNS = ("title", "text")


def with_blob(tenant: Tenant, raw: dict[str, Any], problems: list[tuple[str, str]]) -> dict[str, Any]:
    """``raw`` with the blob in the place of the dataset's id. Datasets of other tenants do not exist here, and nobody names a blob."""
    source = _at(raw, "environment", "search", "source")
    if not isinstance(source, dict) or source.get("type") != "corpus":
        return raw
    if "blob" in source:
        problems.append((f"{FIELD}.blob", "is found by the dataset's id; give dataset instead"))
        return _without_environment(raw)
    wanted = source.get("dataset")
    found = tenant.datasets.filter(public_id=wanted).first() if isinstance(wanted, str) and "\0" not in wanted else None
    if found is None:
        problems.append((f"{FIELD}.dataset", "choose a dataset of yours by its id"))
    elif missing := [column for column in COLUMNS if column not in found.columns]:
        problems.append((f"{FIELD}.dataset", f"a corpus has the columns title and text; this dataset has no {' and no '.join(missing)}"))
    else:
        environment = raw["environment"]
        blob = found.ref().train.model_dump()
        search = {**environment["search"], "source": {"type": "corpus", "blob": blob}}
        return {**raw, "environment": {**environment, "search": search}}
    return _without_environment(raw)


def _at(raw: Any, *path: str) -> Any:
    for key in path:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


def _without_environment(raw: dict[str, Any]) -> dict[str, Any]:
    """So that the other fields are still checked, and all faults are told at once."""
    return {key: value for key, value in raw.items() if key != "environment"}
