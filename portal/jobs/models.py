"""Jobs and what is known of them. ``Job.state`` has one writer, ``lifecycle``; events are rows first and announcements after."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.utils import timezone

from portal.datasets.models import Dataset
from portal.rewards.models import Reward
from tenants.ids import new_id
from tenants.models import Tenant, User

job_id = partial(new_id, "job")


class State(models.TextChoices):
    SUBMITTED = "submitted"
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_STATES = (State.SUBMITTED, State.QUEUED, State.RUNNING, State.PAUSED)


class Job(models.Model):
    """``public_id`` is its id in the engine as well. ``version``: the last committed policy version, also the number of steps done."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="jobs")
    public_id = models.CharField(max_length=32, unique=True, default=job_id, editable=False)
    name = models.CharField(max_length=100)
    dataset = models.ForeignKey(Dataset, models.PROTECT, related_name="jobs")
    reward = models.ForeignKey(Reward, models.PROTECT, related_name="jobs")
    spec = models.JSONField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.SUBMITTED)
    state_reason = models.CharField(max_length=500, blank=True)
    attribution = models.CharField(max_length=10, blank=True, help_text="Whose doing the ending was: user, reward or platform.")
    version = models.PositiveIntegerField(default=0)
    last_seq = models.PositiveIntegerField(default=0)
    engine = models.CharField(max_length=64, blank=True, help_text="The engine that accepted it; a job never changes its engine.")
    submitted_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True, help_text="Since when the list leaves it out unless asked.")
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="job_tenant_id"),)
        indexes = (
            models.Index(fields=["tenant", "-id"]),
            models.Index(fields=["state"]),
        )
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.name

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def is_stopping(self) -> bool:
        """Open, and somebody has asked for its end; what asks for anything else comes too late. A refused wish asks for nothing."""
        wishes = self.commands.filter(kind=JobCommand.Kind.CANCEL)
        return self.is_open and wishes.filter(models.Q(answered_at=None) | models.Q(last_error="")).exists()

    @property
    def steps(self) -> int:
        return self.spec["train"]["steps"]

    @property
    def base_model(self) -> str:
        return self.spec["base_model"]

    @property
    def group(self) -> str:
        """The channel-layer group that hears of this job, and of no other."""
        return f"job.{self.public_id}"


class JobSubmission(models.Model):
    """What is, or was, to be sent to the engine for a job: exactly these bytes on every attempt, since the PUT is idempotent by content."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+")
    job = models.OneToOneField(Job, models.CASCADE, related_name="submission")
    body = models.JSONField()
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)
    request_sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=500, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True, help_text="When the engine took it or refused it.")
    leased_until = models.DateTimeField(null=True, blank=True, help_text="Until when one carrier sends for this job alone.")
    sent_to = models.CharField(
        max_length=31, null=True, blank=True, help_text="The engine chosen at the first sending; empty: the first one."
    )

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "id"], name="jobsubmission_tenant_id"),
            models.UniqueConstraint(fields=["tenant", "idempotency_key"], name="jobsubmission_idempotency"),
        )


class JobCommand(models.Model):
    """A person's wish (cancel, pause, resume) on its way to the engine. Sent in order, re-sent by the sweeper until answered."""

    class Kind(models.TextChoices):
        CANCEL = "cancel"
        PAUSE = "pause"
        RESUME = "resume"

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, models.CASCADE, related_name="commands")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    reason = models.CharField(max_length=500, blank=True)
    requested_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    requested_at = models.DateTimeField(default=timezone.now)
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=500, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="jobcommand_tenant_id"),)
        indexes = (models.Index(fields=["answered_at", "job"]),)
        ordering = ("id",)


class JobEvent(models.Model):
    """One event of the engine's stream, kept as it came, whatever its kind."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, models.CASCADE, related_name="events")
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=64)
    at = models.DateTimeField()
    data = models.JSONField(default=dict)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["job", "seq"], name="jobevent_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="jobevent_tenant_id"),
        )
        # Evaluations, findings and steps of a long history are found without reading all of it.
        indexes = (models.Index(fields=["job", "kind", "seq"], name="jobevent_kind"),)
        ordering = (
            "job",
            "seq",
        )

    def as_dict(self) -> dict:
        return {"seq": self.seq, "kind": self.kind, "at": self.at, "data": self.data}


class Checkpoint(models.Model):
    """A version that somebody keeps: it cannot be deleted until it is let go of. What versions there are, the events say."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, models.CASCADE, related_name="kept_versions")
    version = models.PositiveIntegerField()
    kept_at = models.DateTimeField(default=timezone.now)
    kept_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["job", "version"], name="checkpoint_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="checkpoint_tenant_id"),
        )


class Retention(models.Model):
    """For how many days a tenant keeps what its ended jobs left; None, and no row at all: for ever."""

    tenant = models.OneToOneField(Tenant, models.CASCADE, related_name="retention")
    completions_days = models.PositiveIntegerField(null=True, blank=True)
    versions_days = models.PositiveIntegerField(null=True, blank=True)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="retention_tenant_id"),)


class StepChunk(models.Model):
    """The figures of a full chunk of steps, see ``portal.jobs.series``: made from their events, and never changed."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, models.CASCADE, related_name="step_chunks")
    number = models.PositiveIntegerField()
    first_version = models.PositiveIntegerField()
    last_version = models.PositiveIntegerField()
    last_seq = models.PositiveIntegerField()
    exact = models.JSONField()
    coarse = models.JSONField()
    tokens = models.JSONField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["job", "number"], name="stepchunk_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="stepchunk_tenant_id"),
        )
        ordering = ("job", "number")


class EngineCursor(models.Model):
    """How far an engine's journal has been read. One row per journal: a fresh engine is read from its beginning.

    ``engine`` is the journal's own id, ``name`` what the engine is called in MARLAAS_ENGINES ("" for the one at MARLAAS_ENGINE_URL).
    """

    engine = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=31, blank=True, default="", db_default="")
    epoch = models.PositiveIntegerField(default=0)
    offset = models.PositiveBigIntegerField(default=0)
    current = models.BooleanField(default=False, help_text="The journal that answered last under this name.")
    updated_at = models.DateTimeField(default=timezone.now)


class EngineModel(models.Model):
    """The last known answer of an engine about one base model, so that the door works while the engine is down."""

    name = models.CharField(max_length=200, unique=True)
    served_by = models.CharField(max_length=31, blank=True, default="", db_default="")
    info = models.JSONField()
    updated_at = models.DateTimeField(default=timezone.now)
