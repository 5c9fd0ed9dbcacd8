"""Datasets' mutations."""

from __future__ import annotations

from typing import Any, BinaryIO

from django.conf import settings
from django.db import transaction

from engine.blobs import BlobStore
from portal.datasets import canonical, validate
from portal.datasets.models import Dataset
from portal.errors import Invalid
from portal.names import clean_name
from tenants.access import require
from tenants.models import Role, Tenant, User

EVAL_SHARE = 0.1
SPLIT_SEED = 0


class DatasetInvalid(Invalid):
    """A refused file; ``report`` has every fault with its line."""

    def __init__(self, report: dict[str, Any]):
        self.report = report
        more = report["error_total"] - 1
        first = report["errors"][0]
        where = f"line {first['line']}: " if first["line"] else ""
        super().__init__([("file", f"{where}{first['message']}. {first['fix']}" + (f" ({more} more)" if more else ""))])


def create_dataset(
    tenant: Tenant, user: User, name: str, file: BinaryIO, *, eval_share: float = EVAL_SHARE, seed: int = SPLIT_SEED
) -> Dataset:
    """Check the whole ``file`` (binary, seekable), then store its rows as two blobs and one row; on any fault nothing is kept.

    Raises ``DatasetInvalid`` with the report, ``Invalid`` for the other fields, ``Forbidden`` for viewers.
    """
    require(tenant, user, Role.MEMBER)
    name, problems = clean_name(name)
    if not 0 <= eval_share <= 0.9:
        problems.append(("eval_share", "must lie between 0 and 0.9"))
    if problems:
        raise Invalid(problems)
    checked = validate.validate(file, max_bytes=settings.MAX_UPLOAD_BYTES)
    if checked.report["error_total"]:
        raise DatasetInvalid(checked.report)
    parts = canonical.write(file, checked, BlobStore(settings.BLOBS_DIR), eval_share=eval_share, seed=seed)
    with transaction.atomic():
        return Dataset.objects.create(
            tenant=tenant,
            name=name,
            train_sha256=parts.train.sha256,
            train_bytes=parts.train.bytes,
            train_rows=parts.train_rows,
            eval_sha256=parts.eval.sha256 if parts.eval else "",
            eval_bytes=parts.eval.bytes if parts.eval else 0,
            eval_rows=parts.eval_rows,
            columns=checked.columns,
            report=checked.report,
            created_by=user,
        )
