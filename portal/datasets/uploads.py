"""Uploads' mutations: a file comes in, is checked (at once if it is small, else by a worker), changed, stored or discarded."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any, BinaryIO

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from engine.spec import SpecError
from portal.datasets import origins
from portal.datasets.actions import Checking, DatasetInvalid, check_order, parse_plan, store
from portal.datasets.models import SILENT_FOR, Upload
from portal.errors import Conflict, Invalid
from portal.names import file_name
from tenants.access import require
from tenants.models import Role, Tenant, User

log = structlog.get_logger(__name__)
INLINE_BYTES = 8 << 20
MAX_OPEN = 20
MAX_ATTEMPTS = 4
KEPT_FOR = timedelta(days=2)
BEAT_SECONDS = 1.0
_CHUNK_BYTES = 1 << 20
_DEFAULTS = {"mapping": None, "encoding": "", "eval_share": 0.1, "seed": 0, "model": "", "series": ""}


class Superseded(Exception):
    """The upload was discarded or is checked anew: this check is of no use any more."""


def begin(
    tenant: Tenant,
    user: User,
    now: datetime,
    *,
    name: str,
    filename: str,
    options: dict[str, Any],
    file: BinaryIO | None = None,
    eval_file: BinaryIO | None = None,
    origin: dict[str, Any] | None = None,
    replaces: Upload | None = None,
) -> Upload:
    """Keep the files and start the check; raises ``Invalid`` naming bad fields, ``Forbidden`` for viewers.

    ``origin`` instead of ``file``: what makes the rows. ``replaces``: the upload whose place it takes, which is discarded.
    """
    require(tenant, user, Role.MEMBER)
    options = {**_DEFAULTS, **options}
    check_order(tenant, user, name, parse_plan(options, filename))
    sweep(now)
    if tenant.uploads.filter(stored_as="").count() >= MAX_OPEN:
        raise Conflict([("file", f"{MAX_OPEN} uploads are waiting already; store or discard one first")])
    filename = _printable(filename)
    upload = Upload(tenant=tenant, name=name, filename=filename, origin=origin or {}, options=options, created_by=user, created_at=now)
    try:
        if file is not None:
            upload.bytes = _keep(file, upload, "path")
        if eval_file is not None:
            upload.eval_filename = _printable(getattr(eval_file, "name", "") or "held-out")
            _keep(eval_file, upload, "eval_path")
        upload.save()
    except BaseException:
        shutil.rmtree(upload.folder, ignore_errors=True)
        raise
    if replaces is not None:
        discard(tenant, user, replaces)
    start(upload, now)
    return upload


def change(
    tenant: Tenant,
    user: User,
    upload: Upload,
    now: datetime,
    *,
    name: str,
    options: dict[str, Any],
    wish: str,
    eval_file: BinaryIO | None = None,
) -> None:
    """Take other options and check again; ``wish``: check | store. Raises ``Invalid``."""
    check_order(tenant, user, name, parse_plan(options, upload.filename))
    upload.name, upload.options, upload.wish = name, {**_DEFAULTS, **options}, wish
    if eval_file is not None:
        upload.eval_filename = _printable(getattr(eval_file, "name", "") or "held-out")
        _keep(eval_file, upload, "eval_path")
    moved = tenant.uploads.filter(pk=upload.pk, stored_as="").exclude(state__in=[Upload.State.WAITING, Upload.State.CHECKING])
    if not moved.update(name=upload.name, options=upload.options, wish=wish, eval_filename=upload.eval_filename, note="", attempt=0):
        raise Conflict([("file", "it is being checked just now; wait until that has ended")])
    start(upload, now)


def drop_eval_file(tenant: Tenant, user: User, upload: Upload) -> None:
    require(tenant, user, Role.MEMBER)
    upload.eval_path.unlink(missing_ok=True)
    tenant.uploads.filter(pk=upload.pk).update(eval_filename="")
    upload.eval_filename = ""


def discard(tenant: Tenant, user: User, upload: Upload) -> None:
    """Whoever is checking it notices and stops."""
    require(tenant, user, Role.MEMBER)
    tenant.uploads.filter(pk=upload.pk).delete()
    shutil.rmtree(upload.folder, ignore_errors=True)


def start(upload: Upload, now: datetime) -> None:
    """Check it: here if it is small, else by a worker. Also for one whose worker has died."""
    from portal.datasets.tasks import process_upload

    attempt = Upload.objects.values_list("attempt", flat=True).get(pk=upload.pk) + 1
    if attempt > MAX_ATTEMPTS:
        note = "The check was interrupted several times. Try again, or with a smaller file."
        Upload.objects.filter(pk=upload.pk).update(state=Upload.State.FAILED, note=note)
        return
    state = {"state": Upload.State.WAITING, "attempt": attempt, "beat_at": now, "rows_read": 0}
    if not Upload.objects.filter(pk=upload.pk, attempt=attempt - 1).update(**state):
        return
    if upload.bytes <= INLINE_BYTES and not upload.origin:
        process(upload.pk, attempt)
    else:
        transaction.on_commit(lambda: process_upload.apply_async((upload.pk, attempt), retry=False), robust=True)
    upload.refresh_from_db()


def process(pk: int, attempt: int) -> None:
    """The check itself. Every outcome ends in the row, unless the row has gone on without us."""
    mine = Upload.objects.filter(pk=pk, attempt=attempt)
    if not mine.filter(state=Upload.State.WAITING).update(state=Upload.State.CHECKING, beat_at=timezone.now()):
        return
    upload = mine.select_related("tenant", "created_by").get()
    beat = _Beat(mine)
    try:
        outcome = _outcome(upload, beat)
    except Superseded:
        return
    except DatasetInvalid as refusal:
        outcome = {"state": Upload.State.CHECKED, "report": refusal.report}
    except (origins.OriginFailed, Invalid, SpecError) as error:
        outcome = {"state": Upload.State.FAILED, "note": str(error)[:500]}
    except Exception:
        log.exception("upload_check_failed", upload=upload.public_id)
        outcome = {"state": Upload.State.FAILED, "note": "Something broke on our side; nothing was stored. Try again."}
    if mine.filter(state=Upload.State.CHECKING).update(**outcome, beat_at=timezone.now()) and outcome.get("stored_as"):
        shutil.rmtree(upload.folder, ignore_errors=True)


def others_at_work(pk: int, now: datetime) -> bool:
    """Whether a worker checks another upload: one at a time, since jobs are delivered by the same workers."""
    return Upload.objects.filter(state=Upload.State.CHECKING, beat_at__gt=now - SILENT_FOR).exclude(pk=pk).exists()


def sweep(now: datetime) -> int:
    """Remove uploads that nobody has looked after for long; the number removed."""
    old = list(Upload.objects.filter(created_at__lt=now - KEPT_FOR)[:100])
    for upload in old:
        upload.delete()
        shutil.rmtree(upload.folder, ignore_errors=True)
    return len(old)


def _outcome(upload: Upload, beat: Callable[[int], None]) -> dict[str, Any]:
    if upload.origin and not upload.path.exists():
        upload.folder.mkdir(parents=True, exist_ok=True)
        filename = origins.fetch(upload.origin, upload.path, limit_bytes=settings.MAX_UPLOAD_BYTES, beat=lambda: beat(0))
        upload.filename, upload.bytes = _printable(filename), upload.path.stat().st_size
        Upload.objects.filter(pk=upload.pk).update(filename=upload.filename, bytes=upload.bytes)
    plan = parse_plan(upload.options, upload.filename)
    with ExitStack() as stack:
        file = stack.enter_context(upload.path.open("rb"))
        eval_file = stack.enter_context(upload.eval_path.open("rb")) if upload.eval_filename else None
        checking = stack.enter_context(Checking(file, _Named(eval_file, upload.eval_filename) if eval_file else None, plan, beat))
        if checking.report["error_total"] or not _wants_storing(upload, checking):
            return {"state": Upload.State.CHECKED, "report": checking.report}
        dataset = store(upload.tenant, upload.created_by, upload.name, plan, checking, origin=upload.origin, progress=beat)
    return {"state": Upload.State.CHECKED, "report": checking.report, "stored_as": dataset.public_id}


def _wants_storing(upload: Upload, checking: Checking) -> bool:
    if upload.wish == Upload.Wish.AUTO:
        return checking.train.mapping.plain and not checking.report["warning_causes"].get("encoding")
    return upload.wish == Upload.Wish.STORE


class _Beat:
    """Says that the check goes on, once a second; raises ``Superseded`` when it need not."""

    def __init__(self, mine: Any):
        self._mine = mine
        self._next = 0.0

    def __call__(self, rows: int) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + BEAT_SECONDS
        if not self._mine.filter(state=Upload.State.CHECKING).update(rows_read=rows, beat_at=timezone.now()):
            raise Superseded


class _Named:
    """An open file under the name that it was uploaded with."""

    def __init__(self, file: BinaryIO, name: str):
        self._file, self.name = file, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _printable(filename: str) -> str:
    return "".join(filter(str.isprintable, file_name(filename)))[:200] or "rows"


def _keep(file: BinaryIO, upload: Upload, place: str) -> int:
    """Copy ``file`` into the upload's folder; the bytes copied."""
    upload.folder.mkdir(parents=True, exist_ok=True)
    target = getattr(upload, place)
    staged = target.with_name(f"{target.name}.staging")
    size = 0
    file.seek(0)
    with staged.open("wb") as copy:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > settings.MAX_UPLOAD_BYTES:
                raise Invalid([("file", f"is larger than {settings.MAX_UPLOAD_BYTES:,} bytes; split it into several datasets")])
            copy.write(chunk)
    staged.replace(target)
    return size


def keep_waiting(pk: int, attempt: int, now: datetime) -> None:
    """Say that it has not been forgotten."""
    Upload.objects.filter(pk=pk, attempt=attempt, state=Upload.State.WAITING).update(beat_at=now)
