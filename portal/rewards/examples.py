"""What the form of a reward shows beside its fields: rows of the tenant's own, and each kind's rule."""

from __future__ import annotations

from typing import Any

from portal.datasets.preview import first_item
from portal.rewards.kinds import KINDS
from tenants.models import Tenant

_MADE_UP = {"prompt": "What is 6 times 7?", "answer": "42"}


def items_of(tenant: Tenant) -> dict[str, dict[str, Any]]:
    """Rows for the live example: the first of each of the newest datasets, or a made-up one."""
    found = {dataset.name: first_item(dataset) for dataset in tenant.datasets.all()[:5]}
    return found or {"An example": _MADE_UP}


def rules() -> dict[str, dict[str, Any]]:
    return {kind.type: {"rule": kind.rule, "fields": kind.fields} for kind in KINDS}
