"""Datasets: immutable once stored, their rows in the blob store. Uploads: files on their way to become one."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from engine.spec import BlobRef, DatasetRef
from tenants.ids import new_id
from tenants.models import Tenant, User

dataset_id = partial(new_id, "ds")
upload_id = partial(new_id, "up")
SILENT_FOR = timedelta(minutes=3)


class Dataset(models.Model):
    """One immutable version. Versions of one thing share ``series``, the public id of the first."""

    class Status(models.TextChoices):
        READY = "ready"

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="datasets")
    public_id = models.CharField(max_length=32, unique=True, default=dataset_id, editable=False)
    name = models.CharField(max_length=100)
    series = models.CharField(max_length=32, blank=True, editable=False)
    version = models.PositiveIntegerField(default=1)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.READY)
    train_sha256 = models.CharField(max_length=64)
    train_bytes = models.BigIntegerField()
    train_rows = models.PositiveIntegerField()
    eval_sha256 = models.CharField(max_length=64, blank=True)
    eval_bytes = models.BigIntegerField(default=0)
    eval_rows = models.PositiveIntegerField(default=0)
    columns = models.JSONField(default=list, help_text="Columns that every row has; rewards may use them as item.*")
    report = models.JSONField(default=dict)
    recipe = models.JSONField(default=dict, help_text="How it was made: file, mapping, share, seed, or the generator's settings.")
    lengths = models.JSONField(default=dict, help_text="Prompt lengths by base model.")
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "id"], name="dataset_tenant_id"),
            models.UniqueConstraint(fields=["tenant", "series", "version"], condition=~models.Q(series=""), name="dataset_version"),
        )
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.name

    @property
    def rows(self) -> int:
        return self.train_rows + self.eval_rows

    @property
    def root(self) -> str:
        """The series' name, also of a dataset that has no second version yet."""
        return self.series or self.public_id

    def blob(self, split: str) -> BlobRef | None:
        """``split``: train | eval; None for an eval split that is not there."""
        if split == "train":
            return BlobRef(sha256=self.train_sha256, bytes=self.train_bytes)
        return BlobRef(sha256=self.eval_sha256, bytes=self.eval_bytes) if self.eval_rows else None

    def ref(self) -> DatasetRef:
        """What a job pins."""
        held_out: dict[str, Any] = {"eval": self.blob("eval"), "eval_rows": self.eval_rows} if self.eval_rows else {}
        return DatasetRef(version=self.public_id, train=self.blob("train"), train_rows=self.train_rows, **held_out)


class Upload(models.Model):
    """A file that is not a dataset yet: kept with what is to be done to it, so that a reload or a restart loses nothing.

    ``state``: waiting (for a worker), checking (``beat_at`` tells whether somebody still does), checked (``report`` says how), failed
    (``note`` says why; trying again may help). Every check carries ``attempt``: an answer to an earlier one is ignored.
    ``wish``: check only; store if there is no error; or auto, store if besides the columns are named as ours.
    """

    class State(models.TextChoices):
        WAITING = "waiting"
        CHECKING = "checking"
        CHECKED = "checked"
        FAILED = "failed"

    class Wish(models.TextChoices):
        AUTO = "auto"
        CHECK = "check"
        STORE = "store"

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="uploads")
    public_id = models.CharField(max_length=32, unique=True, default=upload_id, editable=False)
    name = models.CharField(max_length=100, blank=True)
    filename = models.CharField(max_length=200)
    bytes = models.BigIntegerField(default=0)
    eval_filename = models.CharField(max_length=200, blank=True)
    origin = models.JSONField(default=dict, help_text="Empty for a file of the tenant's; else the generator or the hub's name.")
    options = models.JSONField(default=dict, help_text="mapping, encoding, eval_share, seed, model, series")
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    note = models.CharField(max_length=500, blank=True)
    attempt = models.PositiveIntegerField(default=0)
    wish = models.CharField(max_length=10, choices=Wish.choices, default=Wish.AUTO)
    rows_read = models.PositiveBigIntegerField(default=0)
    beat_at = models.DateTimeField(null=True, blank=True)
    report = models.JSONField(default=dict)
    stored_as = models.CharField(max_length=32, blank=True, help_text="The public id of the dataset that it became.")
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="upload_tenant_id"),)
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.name or self.filename

    @property
    def folder(self) -> Path:
        """Beside the blobs, which web and workers both reach."""
        return Path(settings.BLOBS_DIR) / "uploads" / self.public_id

    @property
    def path(self) -> Path:
        return self.folder / "rows"

    @property
    def eval_path(self) -> Path:
        return self.folder / "held-out"

    @property
    def is_open(self) -> bool:
        """A check is under way or about to be."""
        return self.state in (self.State.WAITING, self.State.CHECKING)

    def is_silent(self, now: datetime) -> bool:
        """Whoever was to check has not been heard of for a while: a task was lost or a worker died."""
        return self.is_open and (self.beat_at is None or self.beat_at < now - SILENT_FOR)

    @property
    def errors(self) -> int:
        return self.report.get("error_total", 0)
