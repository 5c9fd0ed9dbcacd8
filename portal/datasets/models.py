"""Datasets: immutable once stored. The rows live in the blob store; this is their name, size and report."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import models
from django.utils import timezone

from engine.spec import BlobRef, DatasetRef
from tenants.ids import new_id
from tenants.models import Tenant, User

dataset_id = partial(new_id, "ds")


class Dataset(models.Model):
    class Status(models.TextChoices):
        READY = "ready"

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="datasets")
    public_id = models.CharField(max_length=32, unique=True, default=dataset_id, editable=False)
    name = models.CharField(max_length=100)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.READY)
    train_sha256 = models.CharField(max_length=64)
    train_bytes = models.BigIntegerField()
    train_rows = models.PositiveIntegerField()
    eval_sha256 = models.CharField(max_length=64, blank=True)
    eval_bytes = models.BigIntegerField(default=0)
    eval_rows = models.PositiveIntegerField(default=0)
    columns = models.JSONField(default=list, help_text="Columns that every row has; rewards may use them as item.*")
    report = models.JSONField(default=dict)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="dataset_tenant_id"),)
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.name

    @property
    def rows(self) -> int:
        return self.train_rows + self.eval_rows

    def ref(self) -> DatasetRef:
        """What a job pins."""
        held_out: dict[str, Any] = {}
        if self.eval_rows:
            held_out = {"eval": BlobRef(sha256=self.eval_sha256, bytes=self.eval_bytes), "eval_rows": self.eval_rows}
        train = BlobRef(sha256=self.train_sha256, bytes=self.train_bytes)
        return DatasetRef(version=self.public_id, train=train, train_rows=self.train_rows, **held_out)
