"""What is told when a job ends or pauses: in the page, by e-mail, and by a signed webhook, with a log of all deliveries."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q
from django.utils import timezone

from portal.jobs.models import Job
from tenants.ids import new_id
from tenants.models import Tenant, User

notice_id, webhook_id = partial(new_id, "ntc"), partial(new_id, "whk")


class Notice(models.Model):
    """``kind``: as in ``job.succeeded``. The key (job, seq) makes each happen once: ``seq`` is that of the event that told of it."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="notices")
    public_id = models.CharField(max_length=32, unique=True, default=notice_id, editable=False)
    job = models.ForeignKey(Job, models.CASCADE, related_name="notices")
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=40)
    reason = models.CharField(max_length=500, blank=True)
    at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["job", "seq"], name="notice_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="notice_tenant_id"),
        )
        indexes = (models.Index(fields=["tenant", "-id"], name="notice_newest"),)
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.kind} of {self.job_id}"

    @property
    def state(self) -> str:
        return self.kind.removeprefix("job.")


class NoticeSetting(models.Model):
    """One person's wishes in one organisation. ``read_id``: the newest notice that was seen."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+")
    user = models.ForeignKey(User, models.CASCADE, related_name="+")
    email = models.BooleanField(default=True)
    read_id = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "user"], name="noticesetting_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="noticesetting_tenant_id"),
        )


class Webhook(models.Model):
    """``secret`` is sealed; whoever makes the webhook sees it once."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="webhooks")
    public_id = models.CharField(max_length=32, unique=True, default=webhook_id, editable=False)
    url = models.CharField(max_length=500)
    secret = models.CharField(max_length=500)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="webhook_tenant_id"),)
        ordering = ("id",)

    def __str__(self) -> str:
        return self.url


class Delivery(models.Model):
    """One notice on its way to one address. ``next_try_at`` None: nothing is due any more, since it arrived or was given up."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="notice_deliveries")
    notice = models.ForeignKey(Notice, models.CASCADE, related_name="deliveries")
    webhook = models.ForeignKey(Webhook, models.CASCADE, null=True, related_name="deliveries")
    email = models.CharField(max_length=254, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(null=True, blank=True)
    delivered_at = models.DateTimeField(null=True, blank=True)
    status = models.PositiveIntegerField(null=True, blank=True, help_text="What the webhook answered last.")
    error = models.CharField(max_length=300, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["notice", "webhook"], name="delivery_webhook_once"),
            models.UniqueConstraint(fields=["notice", "email"], condition=~Q(email=""), name="delivery_email_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="delivery_tenant_id"),
        )
        indexes = (models.Index(fields=["next_try_at"], name="delivery_due"),)
        ordering = ("-id",)
