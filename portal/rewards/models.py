"""Rewards: a named grader in the engine's schema. Immutable: a job pins what it was started with. And what the Lab keeps of its trials."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import models
from django.utils import timezone

from engine.grader_spec import shown
from portal.rewards import kinds
from portal.rewards.probe_models import Probe  # noqa: F401
from tenants.ids import new_id
from tenants.models import Tenant, User

reward_id = partial(new_id, "rw")
sheet_id = partial(new_id, "rd")
run_id = partial(new_id, "lr")
SILENT_FOR = timedelta(seconds=20)


class Standing(models.Manager):
    """Rewards that are there. A job's own way to its reward also finds the one that was deleted since."""

    def get_queryset(self) -> models.QuerySet:
        return super().get_queryset().filter(deleted_at=None)


class Reward(models.Model):
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="rewards")
    public_id = models.CharField(max_length=32, unique=True, default=reward_id, editable=False)
    name = models.CharField(max_length=100)
    grader = models.JSONField()
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(null=True, blank=True, help_text="From then on it is a name in the histories of jobs.")

    objects = Standing()

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


class Sheet(models.Model):
    """What somebody has typed in the Lab, field by field, so that a reload loses nothing.

    Without a ``reward`` it is the draft of one; else what its creator tries that reward on.
    """

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="sheets")
    public_id = models.CharField(max_length=32, unique=True, default=sheet_id, editable=False)
    reward = models.ForeignKey(Reward, models.CASCADE, null=True, blank=True, related_name="sheets")
    fields = models.JSONField(default=dict)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "id"], name="sheet_tenant_id"),
            models.UniqueConstraint(fields=["reward", "created_by"], name="sheet_once"),
        )
        ordering = ("-changed_at",)

    def __str__(self) -> str:
        name = (self.fields.get("name") or [""])[-1]
        return " ".join(name.split())[:100] or "Untitled draft"


class LabRun(models.Model):
    """One trial of a grader. ``grader``, ``on`` and ``repeats`` are what was asked; each case's answer is a ``LabCase``.

    ``done`` counts the cases that are graded, without a gap from the first on. Who grades proves by it that nobody else has gone on.
    """

    class State(models.TextChoices):
        RUNNING = "running"
        SUCCEEDED = "succeeded"
        STOPPED = "stopped"
        FAILED = "failed"

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="lab_runs")
    public_id = models.CharField(max_length=32, unique=True, default=run_id, editable=False)
    reward = models.ForeignKey(Reward, models.CASCADE, null=True, blank=True, related_name="lab_runs")
    sheet = models.ForeignKey(Sheet, models.CASCADE, null=True, blank=True, related_name="lab_runs")
    grader = models.JSONField()
    on = models.JSONField(help_text="What it runs on: texts, rows of a dataset, or the adversarial corpus.")
    repeats = models.PositiveSmallIntegerField(default=1)
    base_model = models.CharField(max_length=200, blank=True, default="", db_default="", help_text="Whose engine grades; the first one's.")
    state = models.CharField(max_length=10, choices=State.choices, default=State.RUNNING)
    note = models.CharField(max_length=500, blank=True)
    total = models.PositiveIntegerField(default=0)
    done = models.PositiveIntegerField(default=0)
    failures = models.PositiveSmallIntegerField(default=0, help_text="How often the engine did not answer.")
    printed = models.TextField(blank=True, help_text="What a Python reward printed lately.")
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    beat_at = models.DateTimeField(default=timezone.now)
    busy_until = models.DateTimeField(null=True, blank=True, help_text="Until when a worker is taken up by it.")
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="labrun_tenant_id"),)
        indexes = (models.Index(fields=["state", "busy_until"], name="labrun_at_work"),)
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.on['type']} at {self.created_at:%Y-%m-%d %H:%M}"

    @property
    def is_open(self) -> bool:
        return self.state == self.State.RUNNING

    def is_silent(self, now: datetime) -> bool:
        """Whoever was to go on with it has not been heard of: a task was lost or a worker died."""
        at_work = self.busy_until is not None and self.busy_until > now
        return self.is_open and not at_work and self.beat_at < now - SILENT_FOR


class LabCase(models.Model):
    """One case of a run: ``case`` is what was graded (text, item, and where it comes from), ``result`` what came of it, None before."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+")
    run = models.ForeignKey(LabRun, models.CASCADE, related_name="cases")
    number = models.PositiveIntegerField()
    case = models.JSONField()
    result = models.JSONField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["run", "number"], name="labcase_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="labcase_tenant_id"),
        )
        ordering = ("run", "number")
