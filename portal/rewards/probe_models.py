"""Probes as the portal keeps them: what was asked, how far it is, and what came of it, which the engine forgets."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from django.db import models
from django.utils import timezone

from portal.datasets.models import Dataset
from tenants.ids import new_id
from tenants.models import Tenant, User

probe_id = partial(new_id, "prb")
DEADLINE = timedelta(minutes=15)


class Probe(models.Model):
    """``public_id`` is its id in the engine as well. ``body`` is exactly what is sent there on every attempt."""

    class State(models.TextChoices):
        WAITING = "waiting"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="probes")
    public_id = models.CharField(max_length=32, unique=True, default=probe_id, editable=False)
    reward = models.ForeignKey("rewards.Reward", models.CASCADE, related_name="probes")
    dataset = models.ForeignKey(Dataset, models.CASCADE, related_name="probes")
    body = models.JSONField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    done = models.PositiveIntegerField(default=0, help_text="Completions so far.")
    total = models.PositiveIntegerField(default=0)
    reason = models.CharField(max_length=1000, blank=True, help_text="Why there is no forecast.")
    result = models.JSONField(null=True, blank=True)
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)
    request_sha256 = models.CharField(max_length=64, blank=True)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "id"], name="probe_tenant_id"),
            models.UniqueConstraint(fields=["tenant", "idempotency_key"], name="probe_idempotency"),
        )
        indexes = (models.Index(fields=["state"], name="probe_state"),)
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"probe of {self.reward} on {self.dataset}"

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def spec(self) -> dict:
        return self.body["spec"]

    @property
    def rows(self) -> int:
        return self.body["rows"]

    def is_overdue(self, now: datetime) -> bool:
        """The engine would have ended it by now."""
        return now > self.created_at + DEADLINE


OPEN_STATES = (Probe.State.WAITING, Probe.State.RUNNING)
