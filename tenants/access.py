"""Who may do what in a tenant: one table of roles, asked by every action."""

from __future__ import annotations

from allauth.mfa.models import Authenticator

from tenants.models import Role, Tenant, User

_RANK = {Role.VIEWER: 0, Role.MEMBER: 1, Role.ADMIN: 2, Role.OWNER: 3}


class Forbidden(Exception):
    """A member of the tenant whose role does not allow this. Strangers never get here: they see a 404."""

    code = "forbidden"


class Refused(ValueError):
    """An input that is no good, or a wish that is not possible as things stand. ``field`` names it."""

    def __init__(self, field: str, message: str):
        self.field = field
        super().__init__(message)


class Closed(Forbidden):
    """The tenant is closed to this member at the moment, whatever the role. ``code``: suspended | mfa_required."""

    def __init__(self, code: str, message: str):
        self.code = code
        super().__init__(message)


def role_in(tenant: Tenant, user: User) -> str | None:
    return tenant.memberships.filter(user=user, user__is_active=True).values_list("role", flat=True).first()


def rank(role: str) -> int:
    return _RANK[Role(role)]


def require(tenant: Tenant, user: User, wanted: str) -> None:
    """Raise ``Forbidden`` unless ``user`` has at least the role ``wanted`` in ``tenant``."""
    role = role_in(tenant, user)
    if role is None or _RANK[Role(role)] < _RANK[Role(wanted)]:
        raise Forbidden(f"This needs the role {Role(wanted).value}; yours is {role or 'none'}. Ask an owner of {tenant.name}.")


def closed(tenant: Tenant, user: User) -> Closed | None:
    """Why ``tenant`` does not open to this member now, or None. A tenant that requires a second factor stays shut without one."""
    if tenant.suspended_at is not None:
        why = tenant.suspended_reason or "Ask the operator of this installation."
        return Closed("suspended", f"{tenant.name} is suspended. {why}")
    if tenant.require_mfa and not has_second_factor(user):
        return Closed("mfa_required", f"{tenant.name} requires two-factor authentication. Set it up for your account first.")
    return None


def has_second_factor(user: User) -> bool:
    """Recovery codes alone are none: they only stand in for one."""
    kinds = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
    return Authenticator.objects.filter(user=user, type__in=kinds).exists()
