"""One function per mutation of accounts, called by pages, API and commands alike."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from tenants import audit, mails, tokens, walls_rows
from tenants.access import Forbidden, Refused, require
from tenants.doors import look_again
from tenants.models import ApiToken, Membership, Role, Tenant, User


def create_tenant(user: User, name: str) -> Tenant:
    """A tenant owned by ``user``."""
    with transaction.atomic():
        tenant = Tenant.objects.create(name=name[:100])
        Membership.objects.create(tenant=tenant, user=user, role=Role.OWNER)
        audit.record(tenant, user, "organisation.created", tenant)
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
    tenant: Tenant,
    user: User,
    name: str,
    now: datetime,
    *,
    scopes: tuple[str, ...] = tokens.DEFAULT_SCOPES,
    life: timedelta = tokens.DEFAULT_LIFE,
    addresses: tuple[str, ...] = (),
) -> tuple[ApiToken, str]:
    """(row, text); the text is shown once. Raises ``Forbidden`` for viewers and ``Refused`` naming what is wrong."""
    require(tenant, user, Role.MEMBER)
    if unknown := sorted(set(scopes) - set(tokens.SCOPES)):
        raise Refused("scopes", f"unknown scope {', '.join(unknown)}; choose among {', '.join(tokens.SCOPES)}")
    if not timedelta(0) < life <= tokens.LONGEST_LIFE:
        raise Refused("days", f"a token lives for 1 to {tokens.LONGEST_LIFE.days} days")
    with transaction.atomic():
        token, text = tokens.issue(tenant, user, name.strip()[:100] or "token", now, scopes=scopes, life=life, addresses=addresses)
        audit.record(tenant, user, "token.created", token, scopes=token.scopes, expires_at=token.expires_at.isoformat())
    return token, text


def check_may_rotate(tenant: Tenant, user: User, token: ApiToken) -> None:
    """Raises ``Forbidden`` for all but its person, and for that one as a viewer."""
    require(tenant, user, Role.MEMBER)
    if token.user_id != user.pk:
        raise Forbidden("A token acts for the person who made it, so only that person rotates it. Admins may revoke it.")


def rotate_token(
    tenant: Tenant, user: User, token: ApiToken, now: datetime, *, overlap: timedelta = tokens.DEFAULT_OVERLAP
) -> tuple[ApiToken, str]:
    """A new token with the old one's name, scopes, networks and length of life; the old one goes on for ``overlap``, then ends.

    Members rotate their own: a token acts for its person, so nobody else gets to hold the new one. Raises ``Forbidden``, ``Refused``.
    """
    check_may_rotate(tenant, user, token)
    if not timedelta(0) <= overlap <= tokens.LONGEST_OVERLAP:
        raise Refused("overlap_hours", f"the overlap is 0 hours to {tokens.LONGEST_OVERLAP.days} days")
    life = min(token.expires_at - token.created_at, tokens.LONGEST_LIFE)
    with transaction.atomic():
        new, text = tokens.issue(tenant, user, token.name, now, scopes=tuple(token.scopes), life=life, addresses=tuple(token.addresses))
        ends = min(token.expires_at, now + overlap)
        live = ApiToken.objects.filter(pk=token.pk, revoked_at=None, expires_at__gt=now, successor="")
        if not live.update(successor=new.token_id, expires_at=ends):
            raise Refused("token", "only a token that is live and was not rotated before can be rotated")
        audit.record(tenant, user, "token.rotated", token, successor=new.token_id, ends_at=ends.isoformat())
        look_again(token.user_id)
    return new, text


def revoke_token(tenant: Tenant, user: User, token: ApiToken, now: datetime) -> bool:
    """Members revoke their own, admins any. Holds for the next request and for open connections. Raises ``Forbidden``."""
    require(tenant, user, Role.MEMBER if token.user_id == user.pk else Role.ADMIN)
    with transaction.atomic():
        if not tokens.revoke(token, now):
            return False
        audit.record(tenant, user, "token.revoked", token)
        look_again(token.user_id)
    return True


def report_leak(text: str, where: str, now: datetime) -> ApiToken | None:
    """Whoever holds a token may end it: revoke it, write it down, and tell its person. None when the text is no token or ended before."""
    with walls_rows.everything():  # whoever found it belongs to another organisation, or to none
        return _end_leaked(text, where, now)


def _end_leaked(text: str, where: str, now: datetime) -> ApiToken | None:
    try:
        token = tokens.find(text)
    except tokens.BadToken:
        return None
    with transaction.atomic():
        if not tokens.revoke(token, now):
            return None
        audit.record(token.tenant, None, "token.leaked", token, where=where)
        look_again(token.user_id)
        transaction.on_commit(lambda: mails.token_leaked(token, where), robust=True)
    return token
