"""What the OpenAI shape has beyond the portal's own nouns: chats, and the metadata that clients hang on jobs."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.utils import timezone

from portal.jobs.models import Job
from tenants.ids import new_id
from tenants.models import Tenant, User

chat_id = partial(new_id, "chatcmpl")


class Chat(models.Model):
    """One answer of a model, and what it used. Its number is its key in the ledger, so that it is billed once.

    ``job`` None: the base model.
    """

    class State(models.TextChoices):
        OPEN = "open"
        DONE = "done"
        LEFT = "left", "the client left"
        FAILED = "failed"

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="chats")
    public_id = models.CharField(max_length=40, unique=True, default=chat_id, editable=False)
    base_model = models.CharField(max_length=200)
    job = models.ForeignKey(Job, models.CASCADE, null=True, related_name="chats")
    version = models.PositiveIntegerField(null=True)
    asked_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="chat_tenant_id"),)
        # Few are, and the sweeper looks for them every minute.
        indexes = (models.Index(fields=["created_at"], condition=models.Q(state="open"), name="chat_open"),)
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.public_id

    @property
    def source(self) -> str:
        """What the ledger says used the tokens."""
        return "base" if self.job is None else f"{self.job.public_id}@{self.version}"


class JobMetadata(models.Model):
    """One pair of a job's ``metadata``, by which a client finds its jobs again."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, models.CASCADE, related_name="metadata")
    key = models.CharField(max_length=64)
    value = models.CharField(max_length=512)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["job", "key"], name="jobmetadata_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="jobmetadata_tenant_id"),
        )
        ordering = ("job", "key")

    def __str__(self) -> str:
        return f"{self.key} of {self.job}"
