"""Rewards: a named grader in the engine's schema. Immutable: a job pins what it was started with."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import models
from django.utils import timezone

from engine.grader_spec import shown
from portal.rewards import kinds
from tenants.ids import new_id
from tenants.models import Tenant, User

reward_id = partial(new_id, "rw")


class Reward(models.Model):
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="rewards")
    public_id = models.CharField(max_length=32, unique=True, default=reward_id, editable=False)
    name = models.CharField(max_length=100)
    grader = models.JSONField()
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="reward_tenant_id"),)
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.name

    @property
    def kind(self) -> str:
        return self.grader["type"]

    @property
    def shown_grader(self) -> dict[str, Any]:
        """As pages and API may show it: without the secret that signs its requests."""
        return shown(self.grader)

    @property
    def summary(self) -> str:
        return kinds.summary(self.grader)
