"""What the API itself keeps: answers given under an Idempotency-Key."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from tenants.models import Tenant


class Reply(models.Model):
    """One POST under one key. ``status`` None: being worked on, until ``leased_until``; else its answer, sealed with the key itself."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+")
    key_hash = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    sealed = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    leased_until = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "id"], name="reply_tenant_id"),
            models.UniqueConstraint(fields=["tenant", "key_hash"], name="reply_once"),
        )
        indexes = (models.Index(fields=["tenant", "created_at"], name="reply_age"),)
