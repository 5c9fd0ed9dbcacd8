"""Who may do what in a tenant: one table of roles, asked by every action."""

from __future__ import annotations

from tenants.models import Role, Tenant, User

_RANK = {Role.VIEWER: 0, Role.MEMBER: 1, Role.ADMIN: 2, Role.OWNER: 3}


class Forbidden(Exception):
    """A member of the tenant whose role does not allow this. Strangers never get here: they see a 404."""


def role_in(tenant: Tenant, user: User) -> str | None:
    return tenant.memberships.filter(user=user, user__is_active=True).values_list("role", flat=True).first()


def require(tenant: Tenant, user: User, wanted: Role) -> None:
    """Raise ``Forbidden`` unless ``user`` has at least the role ``wanted`` in ``tenant``."""
    role = role_in(tenant, user)
    if role is None or _RANK[Role(role)] < _RANK[wanted]:
        raise Forbidden(f"This needs the role {wanted.value}; yours is {role or 'none'}. Ask an owner of {tenant.name}.")
