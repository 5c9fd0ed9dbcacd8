"""Datasets' mutations."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO

from django.conf import settings
from django.db import IntegrityError, transaction

from engine.blobs import BlobStore
from portal.billing import quotas
from portal.datasets import canonical, mapping, validate
from portal.datasets.findings import MAX_LISTED
from portal.datasets.mapping import Mapping
from portal.datasets.models import Dataset
from portal.datasets.text import ENCODINGS
from portal.datasets.tokenizer_files import NoTokenizer, ruler
from portal.datasets.validate import Checked, Options, Progress
from portal.errors import Conflict, Invalid
from portal.names import clean_name, file_name
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User

EVAL_SHARE = 0.1
SPLIT_SEED = 0
MAX_SEED = 2**31


class DatasetInvalid(Invalid):
    """A refused file; ``report`` has every fault with its line."""

    def __init__(self, report: dict[str, Any]):
        self.report = report
        more = report["error_total"] - 1
        told = [(fault.get("file", "file"), _sentence(fault)) for fault in report["errors"]]
        super().__init__([(told[0][0], told[0][1] + (f" ({more} more)" if more else "")), *told[1:]])


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is to become of a file. ``mapping`` None: as proposed; ``model``: whose tokens to count, or ""; ``series``: what it renews."""

    filename: str = ""
    mapping: Mapping | None = None
    encoding: str = ""
    eval_share: float = EVAL_SHARE
    seed: int = SPLIT_SEED
    model: str = ""
    series: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_plan(raw: dict[str, Any], filename: str) -> Plan:
    """``raw`` (JSON-like, from a form, the API or a row) as a plan; raises ``Invalid`` naming each bad field."""
    problems: list[tuple[str, str]] = []
    chosen = None
    if raw.get("mapping") is not None:
        try:
            chosen = mapping.parse(raw["mapping"])
        except mapping.BadMapping as bad:
            problems.append((bad.field, str(bad)))
    share, seed, encoding = raw.get("eval_share", EVAL_SHARE), raw.get("seed", SPLIT_SEED), raw.get("encoding", "")
    if not isinstance(share, (int, float)) or not 0 <= share <= 0.9:
        problems.append(("eval_share", "must lie between 0 and 0.9"))
    if not isinstance(seed, int) or not 0 <= seed < MAX_SEED:
        problems.append(("seed", f"must be a whole number from 0 to {MAX_SEED - 1}"))
    if encoding not in ("", *ENCODINGS):
        problems.append(("encoding", f"choose among {', '.join(ENCODINGS)}"))
    if problems:
        raise Invalid(problems)
    more = {name: str(raw.get(name) or "") for name in ("model", "series")}
    return Plan(filename=file_name(filename), mapping=chosen, encoding=encoding, eval_share=float(share), seed=seed, **more)


def create_dataset(
    tenant: Tenant,
    user: User,
    name: str,
    file: BinaryIO,
    *,
    eval_file: BinaryIO | None = None,
    eval_share: float = EVAL_SHARE,
    seed: int = SPLIT_SEED,
    plan: Plan | None = None,
) -> Dataset:
    """Check the whole ``file`` (binary, seekable), then store its rows as two blobs and one row; on any fault nothing is kept.

    ``eval_file`` is held out instead of a share of the rows; ``plan`` stands for ``eval_share`` and ``seed`` and says more. Raises
    ``DatasetInvalid`` with the report, ``Invalid`` for the other fields, ``Forbidden`` for viewers.
    """
    plan = plan or parse_plan({"eval_share": eval_share, "seed": seed}, getattr(file, "name", "") or "")
    check_order(tenant, user, name, plan)
    with Checking(file, eval_file, plan) as checking:
        return store(tenant, user, name, plan, checking)


def check_order(tenant: Tenant, user: User, name: str, plan: Plan) -> None:
    """Everything but the file: raises ``Invalid`` or ``Forbidden``."""
    require(tenant, user, Role.MEMBER)
    _, problems = clean_name(name)
    if plan.series and not tenant.datasets.filter(public_id=plan.series).exists():
        problems.append(("series", f"there is no dataset {plan.series[:40]!a}"))
    if problems:
        raise Invalid(problems)
    quotas.admit_bytes(tenant, 1)


def store(
    tenant: Tenant,
    user: User,
    name: str,
    plan: Plan,
    checking: Checking,
    *,
    origin: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Store what was checked; raises ``DatasetInvalid`` if it has errors. ``origin``: what made the file, if no person did."""
    report = checking.report
    if report["error_total"]:
        raise DatasetInvalid(report)
    train, held_out = checking.train, checking.held_out
    split = {"eval_share": plan.eval_share, "seed": plan.seed, "held_out": held_out}
    parts = canonical.write(train, BlobStore(settings.BLOBS_DIR), **split, progress=progress)
    quotas.admit_bytes(tenant, parts.train.bytes + (parts.eval.bytes if parts.eval else 0))
    recipe = {**plan.as_dict(), "mapping": train.mapping.as_dict(), "origin": origin or {}, "eval_file": held_out is not None}
    columns = [column for column in train.columns if held_out is None or column in held_out.columns]
    fields = {"name": clean_name(name)[0], "columns": columns, "report": report, "recipe": recipe, "created_by": user}
    if report["lengths"]:
        fields["lengths"] = {report["lengths"]["model"]: report["lengths"]}
    return _insert(tenant, plan.series, parts, fields)


def _insert(tenant: Tenant, series: str, parts: canonical.Parts, fields: dict[str, Any]) -> Dataset:
    with transaction.atomic():
        if series:
            Tenant.objects.select_for_update().get(pk=tenant.pk)  # two new versions at once: the second gets the next number
            previous = tenant.datasets.get(public_id=series)
            tenant.datasets.filter(public_id=previous.root, series="").update(series=previous.root)
            newest = tenant.datasets.filter(series=previous.root).order_by("-version").first()
            fields |= {"series": previous.root, "version": newest.version + 1}
        try:
            with transaction.atomic():
                dataset = tenant.datasets.create(
                    train_sha256=parts.train.sha256,
                    train_bytes=parts.train.bytes,
                    train_rows=parts.train_rows,
                    eval_sha256=parts.eval.sha256 if parts.eval else "",
                    eval_bytes=parts.eval.bytes if parts.eval else 0,
                    eval_rows=parts.eval_rows,
                    **fields,
                )
                audit.record(tenant, fields["created_by"], "dataset.created", dataset, rows=dataset.rows)
                return dataset
        except IntegrityError as error:
            raise Conflict([("series", "another version was stored at the same moment; try again")]) from error


class Checking:
    """Checks both files; ``report`` is of both. The digests' scratch files live until the block ends."""

    def __init__(self, file: BinaryIO, eval_file: BinaryIO | None, plan: Plan, progress: Progress | None = None):
        options = Options(filename=plan.filename, encoding=plan.encoding, mapping=plan.mapping, ruler=_ruler(plan.model))
        limit = settings.MAX_UPLOAD_BYTES
        self.held_out: Checked | None = None
        self.train = validate.validate(file, max_bytes=limit, options=options, progress=progress)
        if eval_file is not None:
            own = replace(options, filename=getattr(eval_file, "name", "") or plan.filename, mapping=self.train.mapping, ruler=None)
            self.held_out = validate.validate(eval_file, max_bytes=limit, options=own, progress=progress)
        self.report = whole_report(self.train, self.held_out)

    def __enter__(self) -> Checking:
        return self

    def __exit__(self, *_: object) -> None:
        self.train.close()
        if self.held_out is not None:
            self.held_out.close()


def whole_report(train: Checked, held_out: Checked | None) -> dict[str, Any]:
    """One report of both files; faults of the second are marked ``"file": "eval_file"``."""
    if held_out is None:
        return train.report
    train.errors.take(held_out.errors, file="eval_file")
    if not train.errors.total:
        total, nearest = train.digests.shared_with(held_out.digests, MAX_LISTED)
        for line, here in nearest:
            message = f"the same prompt as in line {here} of the training file"
            held_out.warnings.add("leak", line, None, message, "hold out other prompts, or the held-out reward measures memory")
        held_out.warnings.total += total - len(nearest)
    train.warnings.take(held_out.warnings, file="eval_file")
    return {**train.report, "eval_rows": held_out.rows}


def _ruler(model: str) -> Any:
    if not model:
        return None
    try:
        return ruler(model)
    except NoTokenizer as error:
        raise Invalid([("model", str(error))]) from error


def _sentence(fault: dict[str, Any]) -> str:
    where = f"line {fault['line']}: " if fault["line"] else ""
    return f"{where}{fault['message']}. {fault['fix']}"


def held_out_from(tenant: Tenant, user: User, train: Dataset, other: Dataset) -> Dataset:
    """The training rows of ``train`` with those of ``other`` held out; the same one when it was asked for before. Raises ``Forbidden``.

    Held-out rows are numbered after the training rows, as those of an eval file are.
    """
    require(tenant, user, Role.MEMBER)
    origin = {"training_file": train.public_id, "validation_file": other.public_id}
    if standing := tenant.datasets.filter(recipe__origin=origin).order_by("id").first():
        return standing
    blobs = BlobStore(settings.BLOBS_DIR)
    held_out, rows = canonical.renumbered(blobs, other.blob("train"), first_row=train.rows)
    quotas.admit_bytes(tenant, train.train_bytes + held_out.bytes)
    with transaction.atomic():
        dataset = tenant.datasets.create(
            name=train.name,
            train_sha256=train.train_sha256,
            train_bytes=train.train_bytes,
            train_rows=train.train_rows,
            eval_sha256=held_out.sha256,
            eval_bytes=held_out.bytes,
            eval_rows=rows,
            columns=[column for column in train.columns if column in other.columns],
            report=train.report,
            recipe={**train.recipe, "origin": origin, "eval_file": True},
            lengths=train.lengths,
            created_by=user,
        )
        audit.record(tenant, user, "dataset.created", dataset, rows=dataset.rows)
    return dataset
