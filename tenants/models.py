"""Who: users, tenants (organisations), memberships, invitations, API tokens, and the log of what they did.

Everything a tenant owns hangs off ``Tenant`` as a relation.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from tenants.ids import new_id, tenant_id

invitation_id = partial(new_id, "inv")
membership_id = partial(new_id, "mem")


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.full_clean(exclude=["password"])
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Whoever can run commands on the machine vouches for the address: no mail has to be awaited."""
        user = self.create_user(email, password, is_staff=True, is_superuser=True, **fields)
        user.emailaddress_set.create(email=user.email, verified=True, primary=True)
        return user

    def get_by_natural_key(self, email: str) -> User:
        return self.get(email__iexact=email)


class User(AbstractBaseUser, PermissionsMixin):
    """A person. Logs in by e-mail address; may belong to several tenants."""

    email = models.EmailField("e-mail", max_length=254, unique=True)
    name = models.CharField(max_length=150, blank=True)
    is_staff = models.BooleanField("operator", default=False, help_text="May use the records admin.")
    is_active = models.BooleanField(default=True)
    date_joined = models.DateTimeField(default=timezone.now)

    objects = UserManager()

    USERNAME_FIELD = EMAIL_FIELD = "email"
    REQUIRED_FIELDS: list[str] = []  # noqa: RUF012 - Django's own spelling

    class Meta:
        constraints = (models.UniqueConstraint(Lower("email"), name="user_email_any_case"),)

    def __str__(self) -> str:
        return self.email


class Role(models.TextChoices):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


class Tenant(models.Model):
    public_id = models.CharField(max_length=32, unique=True, default=tenant_id, editable=False)
    name = models.CharField(max_length=100)
    weight = models.FloatField(default=1.0, help_text="Share of the engine relative to other tenants.")
    created_at = models.DateTimeField(default=timezone.now)
    require_mfa = models.BooleanField("second factor required", default=False)
    suspended_at = models.DateTimeField(null=True, blank=True, help_text="Since when an operator keeps it closed.")
    suspended_reason = models.CharField(max_length=300, blank=True, help_text="What its members read.")
    deleted_at = models.DateTimeField(null=True, blank=True, help_text="When its owner deleted it; the row stays for billing.")
    purged_at = models.DateTimeField(null=True, blank=True, help_text="When the last of its things was gone.")
    users = models.ManyToManyField(User, through="Membership", related_name="tenants")

    def __str__(self) -> str:
        return f"{self.name} ({self.public_id})"  # names need not differ


class Membership(models.Model):
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    public_id = models.CharField(max_length=32, unique=True, default=membership_id, editable=False)
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "user"], name="membership_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="membership_tenant_id"),
        )

    def __str__(self) -> str:
        return f"{self.user} in {self.tenant} ({self.role})"


class ApiToken(models.Model):
    """A bearer token without its secret: only a keyed hash is kept. See ``tenants.tokens``.

    ``successor``: the ``token_id`` of the one that took its place; it goes on working until ``expires_at``, which the rotation moved.
    """

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="api_tokens")
    user = models.ForeignKey(User, models.CASCADE, related_name="api_tokens")
    token_id = models.CharField(max_length=16, unique=True, editable=False)
    name = models.CharField(max_length=100)
    secret_hash = models.CharField(max_length=64, editable=False)
    scopes = models.JSONField(default=list)
    addresses = models.JSONField(default=list, blank=True, help_text="Networks that it may be used from; empty: from everywhere.")
    successor = models.CharField(max_length=16, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="apitoken_tenant_id"),)
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.name} (mrl_live_{self.token_id}…)"

    def is_live(self, now: Any) -> bool:
        return self.revoked_at is None and now < self.expires_at


class Invitation(models.Model):
    """A wish that somebody joins, sent by mail. Of its secret only a hash is kept; a new mail makes a new secret."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="invitations")
    public_id = models.CharField(max_length=32, unique=True, default=invitation_id, editable=False)
    email = models.EmailField(max_length=254)
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)
    secret_hash = models.CharField(max_length=64, editable=False)
    invited_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "id"], name="invitation_tenant_id"),
            models.UniqueConstraint(
                fields=["tenant", "email"], condition=Q(accepted_at=None, withdrawn_at=None), name="invitation_open_once"
            ),
        )
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.email} to {self.tenant}"

    def is_open(self, now: Any) -> bool:
        return self.accepted_at is None and self.withdrawn_at is None and now < self.expires_at


class AuditEntry(models.Model):
    """One thing that somebody did in a tenant. Written by ``tenants.audit`` only, in the transaction of the thing itself; never changed."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="audit")
    at = models.DateTimeField(default=timezone.now)
    action = models.CharField(max_length=60)
    actor = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    actor_email = models.CharField(max_length=254, blank=True, help_text="As it was then; empty: the service itself.")
    operator_email = models.CharField(max_length=254, blank=True, help_text="The operator who acted as this person.")
    target = models.CharField(max_length=64, blank=True, help_text="The public id of what it was done to.")
    target_name = models.CharField(max_length=254, blank=True)
    token_id = models.CharField(max_length=16, blank=True)
    address = models.CharField(max_length=45, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    details = models.JSONField(default=dict)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="auditentry_tenant_id"),)
        indexes = (models.Index(fields=["tenant", "-id"], name="auditentry_newest"),)
        verbose_name_plural = "audit entries"
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.action} by {self.actor_email or 'the service'}"

    def save(self, *args: Any, **options: Any) -> None:
        if not self._state.adding:
            raise TypeError("what was written into the audit log is never changed")
        super().save(*args, **{**options, "force_insert": True})
