"""One function per mutation of accounts, called by pages, API and commands alike."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from tenants import tokens
from tenants.access import require
from tenants.models import ApiToken, Membership, Role, Tenant, User


def create_tenant(user: User, name: str) -> Tenant:
    """A tenant owned by ``user``."""
    with transaction.atomic():
        tenant = Tenant.objects.create(name=name[:100])
        Membership.objects.create(tenant=tenant, user=user, role=Role.OWNER)
    return tenant


def ensure_own_tenant(user: User) -> Tenant:
    """The user's first tenant, made at sign-up and named after the address when there is none."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        first = user.memberships.select_related("tenant").order_by("id").first()
        return first.tenant if first else create_tenant(user, default_name(user.email))


def default_name(email: str) -> str:
    local = email.partition("@")[0].partition("+")[0]
    return " ".join(part.capitalize() for part in local.replace("_", ".").replace("-", ".").split(".") if part) or "My organisation"


def create_token(
    tenant: Tenant, user: User, name: str, now: datetime, *, scopes: tuple[str, ...] = tokens.SCOPES, life: timedelta = tokens.DEFAULT_LIFE
) -> tuple[ApiToken, str]:
    """(row, text); the text is shown once. Raises ``Forbidden`` for viewers and ``ValueError`` naming an unknown scope."""
    require(tenant, user, Role.MEMBER)
    if unknown := sorted(set(scopes) - set(tokens.SCOPES)):
        raise ValueError(f"unknown scope {', '.join(unknown)}; choose among {', '.join(tokens.SCOPES)}")
    return tokens.issue(tenant, user, name.strip() or "token", now, scopes=scopes, life=life)


def revoke_token(tenant: Tenant, user: User, token: ApiToken, now: datetime) -> bool:
    """Members revoke their own, admins any. Raises ``Forbidden``."""
    require(tenant, user, Role.MEMBER if token.user_id == user.pk else Role.ADMIN)
    return tokens.revoke(token, now)
