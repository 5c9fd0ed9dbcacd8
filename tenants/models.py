"""Who: users, tenants (organisations), memberships and API tokens. Everything a tenant owns hangs off ``Tenant`` as a relation."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from tenants.ids import tenant_id


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.full_clean(exclude=["password"])
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

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
    users = models.ManyToManyField(User, through="Membership", related_name="tenants")

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
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
    """A bearer token without its secret: only a keyed hash is kept. See ``tenants.tokens``."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="api_tokens")
    user = models.ForeignKey(User, models.CASCADE, related_name="api_tokens")
    token_id = models.CharField(max_length=16, unique=True, editable=False)
    name = models.CharField(max_length=100)
    secret_hash = models.CharField(max_length=64, editable=False)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="apitoken_tenant_id"),)
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.name} (mrl_{self.token_id}…)"

    def is_live(self, now: Any) -> bool:
        return self.revoked_at is None and now < self.expires_at
