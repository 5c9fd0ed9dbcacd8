"""Who belongs to a tenant and as what. A tenant always has an owner: whatever would take the last one away is refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta

from allauth.account.models import EmailAddress
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils.crypto import constant_time_compare, salted_hmac

from tenants import audit, mails
from tenants.access import Forbidden, Refused, has_second_factor, rank, require, role_in
from tenants.models import Invitation, Membership, Role, Tenant, User

INVITATION_LIFE = timedelta(days=7)
MAX_OPEN_INVITATIONS = 100
MAX_ADDRESS = 254


def change_tenant(tenant: Tenant, user: User, *, name: str | None = None, require_mfa: bool | None = None) -> Tenant:
    """Admins rename; owners decide whether everybody needs a second factor, and need one themselves first."""
    require(tenant, user, Role.ADMIN)
    changes: dict[str, object] = {}
    if name is not None and name != tenant.name:
        changes["name"] = _clean_name(name)
    if require_mfa is not None and require_mfa != tenant.require_mfa:
        require(tenant, user, Role.OWNER)
        if require_mfa and not has_second_factor(user):
            raise Refused("require_mfa", "set up a second factor for your own account first, or you would lock yourself out")
        changes["require_mfa"] = require_mfa
    if changes:
        with transaction.atomic():
            for field, value in changes.items():
                setattr(tenant, field, value)
            tenant.save(update_fields=list(changes))
            audit.record(tenant, user, "organisation.changed", tenant, **changes)
    return tenant


def invite(tenant: Tenant, user: User, email: str, role: str, now: datetime, url_of: Callable[[Invitation, str], str]) -> Invitation:
    """Send an invitation; a second one to the same address replaces the first. ``url_of(invitation, secret)`` makes its address.

    Admins invite up to admins; only owners invite owners. Raises ``Forbidden``, ``Refused``.
    """
    require(tenant, user, Role.ADMIN)
    email, role = _clean_email(email), _clean_role(role)
    _may_grant(tenant, user, role)
    if tenant.memberships.filter(user__email=email).exists():
        raise Refused("email", f"{email} is a member already")
    secret = secrets.token_urlsafe(32)
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        tenant.invitations.filter(email=email, accepted_at=None, withdrawn_at=None).update(withdrawn_at=now)
        if tenant.invitations.filter(accepted_at=None, withdrawn_at=None, expires_at__gt=now).count() >= MAX_OPEN_INVITATIONS:
            raise Refused("email", f"{MAX_OPEN_INVITATIONS} invitations are open; withdraw some first")
        invited = tenant.invitations.create(
            email=email, role=role, secret_hash=_hash(secret), invited_by=user, created_at=now, expires_at=now + INVITATION_LIFE
        )
        audit.record(tenant, user, "member.invited", invited, role=role)
        transaction.on_commit(lambda: mails.invitation(invited, url_of(invited, secret)), robust=True)
    return invited


def withdraw(tenant: Tenant, user: User, invited: Invitation, now: datetime) -> bool:
    """Whether this call withdrew it."""
    require(tenant, user, Role.ADMIN)
    with transaction.atomic():
        done = tenant.invitations.filter(pk=invited.pk, accepted_at=None, withdrawn_at=None).update(withdrawn_at=now)
        if done:
            audit.record(tenant, user, "invitation.withdrawn", invited)
    return bool(done)


def find_invitation(public_id: str, secret: str, now: datetime) -> Invitation | None:
    """The open invitation that this link stands for."""
    invited = Invitation.objects.select_related("tenant", "invited_by").filter(public_id=public_id, tenant__deleted_at=None).first()
    wanted = invited.secret_hash if invited else "0" * 64
    return invited if constant_time_compare(_hash(secret), wanted) and invited and invited.is_open(now) else None


def accept(invited: Invitation, user: User, now: datetime) -> Membership:
    """Join. The link alone is not enough: the invited address has to be one of the person's. Raises ``Forbidden``, ``Refused``."""
    if not owns_address(user, invited.email):
        raise Forbidden(f"This invitation is for {invited.email}; you are signed in as {user.email}.")
    with transaction.atomic():
        if not Invitation.objects.filter(pk=invited.pk, accepted_at=None, withdrawn_at=None, expires_at__gt=now).update(accepted_at=now):
            raise Refused("invitation", "this invitation was used, withdrawn or replaced meanwhile; ask for a new one")
        membership, joined = Membership.objects.get_or_create(tenant=invited.tenant, user=user, defaults={"role": invited.role})
        if joined:
            audit.record(invited.tenant, user, "member.joined", membership, name=user.email, role=membership.role)
    return membership


def owns_address(user: User, email: str) -> bool:
    return user.email.lower() == email.lower() or EmailAddress.objects.filter(user=user, email__iexact=email, verified=True).exists()


def change_role(tenant: Tenant, user: User, membership: Membership, role: str) -> Membership:
    """Admins move others between viewer, member and admin; only owners touch owners. Raises ``Forbidden``, ``Refused``."""
    require(tenant, user, Role.ADMIN)
    role = _clean_role(role)
    with transaction.atomic():
        current = _locked(tenant, membership)
        _may_grant(tenant, user, current.role)
        _may_grant(tenant, user, role)
        if current.role == role:
            return current
        if current.role == Role.OWNER:
            _keep_an_owner(tenant, current)
        before, current.role = current.role, role
        current.save(update_fields=["role"])
        audit.record(tenant, user, "member.role_changed", current, name=current.user.email, before=before, after=role)
    return current


def transfer(tenant: Tenant, user: User, membership: Membership) -> None:
    """Another member becomes the owner, and the giver an admin. Raises ``Forbidden``, ``Refused``."""
    require(tenant, user, Role.OWNER)
    if membership.user_id == user.pk:
        raise Refused("member", "you are the owner already; choose somebody else")
    with transaction.atomic():
        heir = _locked(tenant, membership)
        if not heir.user.is_active:
            raise Refused("member", f"the account of {heir.user.email} is switched off")
        heir.role = Role.OWNER
        heir.save(update_fields=["role"])
        giver = tenant.memberships.get(user=user)
        giver.role = Role.ADMIN
        giver.save(update_fields=["role"])
        audit.record(tenant, user, "ownership.transferred", heir, name=heir.user.email)


def remove(tenant: Tenant, user: User, membership: Membership, now: datetime) -> None:
    """End a membership, another's or one's own (leaving). The person's tokens of this tenant are revoked and never come back."""
    own = membership.user_id == user.pk
    require(tenant, user, Role.VIEWER if own else Role.ADMIN)
    with transaction.atomic():
        current = _locked(tenant, membership)
        if not own:
            _may_grant(tenant, user, current.role)
        if current.role == Role.OWNER:
            _keep_an_owner(tenant, current)
        tenant.api_tokens.filter(user_id=current.user_id, revoked_at=None).update(revoked_at=now)
        audit.record(tenant, user, "member.left" if own else "member.removed", current, name=current.user.email, role=current.role)
        current.delete()


def _locked(tenant: Tenant, membership: Membership) -> Membership:
    """The row as it is now; two changes of owners at once wait for each other."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    current = tenant.memberships.select_related("user").filter(pk=membership.pk).first()
    if current is None:
        raise Refused("member", "this person has left meanwhile")
    return current


def _keep_an_owner(tenant: Tenant, leaving: Membership) -> None:
    if not tenant.memberships.filter(role=Role.OWNER, user__is_active=True).exclude(pk=leaving.pk).exists():
        raise Refused("member", "the last owner stays; hand the ownership over, or delete the organisation")


def _may_grant(tenant: Tenant, user: User, role: str) -> None:
    """Nobody makes, changes or removes somebody above himself."""
    if rank(role) > rank(role_in(tenant, user) or Role.VIEWER):
        raise Forbidden(f"Only owners decide about owners. Ask an owner of {tenant.name}.")


def _clean_email(email: object) -> str:
    text = str(email or "").strip().lower()
    try:
        if len(text) > MAX_ADDRESS:
            raise ValidationError("too long")
        validate_email(text)
    except ValidationError:
        raise Refused("email", "write one e-mail address, as in ada@example.org") from None
    return text


def _clean_role(role: object) -> str:
    if role not in Role.values:
        raise Refused("role", f"choose among {', '.join(Role.values)}")
    return str(role)


def _clean_name(name: object) -> str:
    text = " ".join(str(name).split())
    if not 1 <= len(text) <= 100 or not text.isprintable():
        raise Refused("name", "1 to 100 printable characters")
    return text


def _hash(secret: str) -> str:
    return salted_hmac("tenants.invitations", secret, algorithm="sha256").hexdigest()
