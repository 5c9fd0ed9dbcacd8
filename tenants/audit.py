"""The audit log: who did what in a tenant, when, from where and through which token.

``record`` is called by actions inside their transaction, so that nothing is done without its entry and no entry tells of what was not done.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from tenants import origin, walls_rows
from tenants.models import AuditEntry, Tenant, User

DETAIL_CHARACTERS = 200

# What an entry may be of, with the words that people read.
ACTIONS = {
    "organisation.created": "created the organisation",
    "organisation.changed": "changed the organisation",
    "organisation.exported": "exported all data",
    "organisation.deleted": "deleted the organisation",
    "organisation.suspended": "suspended the organisation",
    "organisation.restored": "lifted the suspension",
    "ownership.transferred": "handed the ownership over",
    "member.invited": "invited",
    "member.joined": "joined",
    "member.role_changed": "changed the role of",
    "member.removed": "removed",
    "member.left": "left",
    "invitation.withdrawn": "withdrew the invitation of",
    "token.created": "created the token",
    "token.rotated": "rotated the token",
    "token.revoked": "revoked the token",
    "token.leaked": "reported as leaked the token",
    "dataset.created": "stored the dataset",
    "dataset.deleted": "deleted the dataset",
    "reward.created": "created the reward",
    "reward.deleted": "deleted the reward",
    "job.created": "started the job",
    "job.cancel": "cancelled the job",
    "job.pause": "paused the job",
    "job.resume": "resumed the job",
    "job.archived": "archived the job",
    "webhook.created": "added the webhook",
    "webhook.removed": "removed the webhook",
    "checkpoint.deleted": "deleted checkpoints of",
    "retention.changed": "changed the retention of",
    "retention.applied": "deleted by the retention rules what was due of",
    "job.downloaded": "downloaded an adapter of",
    "billing.credit": "went to buy credit",
    "billing.plan": "went to buy the plan",
    "billing.limits": "changed the limits of a month",
}


def record(tenant: Tenant, user: User | None, action: str, target: Any = None, *, name: str = "", **details: Any) -> AuditEntry:
    """Write down that ``user`` (None: the service) did ``action`` to ``target``, a row with a public id, or a text.

    ``details`` are short facts, never a secret: old and new role, scopes, a count.
    """
    here = origin.current()
    with walls_rows.inside(tenant.pk):  # a person of one organisation may have founded, joined or left another
        return _write(tenant, user, action, target, name, details, here)


def _write(
    tenant: Tenant, user: User | None, action: str, target: Any, name: str, details: dict[str, Any], here: origin.Origin
) -> AuditEntry:
    return tenant.audit.create(
        at=timezone.now(),
        action=action,
        actor=user,
        actor_email=user.email if user else "",
        operator_email=here.operator_email,
        target=_id_of(target),
        target_name=(name or _name_of(target))[:254],
        token_id=here.token_id,
        address=here.address,
        request_id=here.request_id,
        details={key: _short(value) for key, value in details.items()},
    )


def words(action: str) -> str:
    """The action as a verb; one that a later release wrote is shown as it is."""
    return ACTIONS.get(action, action.replace("_", " ").replace(".", ": "))


def _id_of(target: Any) -> str:
    if target is None or isinstance(target, str):
        return (target or "")[:64]
    return str(getattr(target, "public_id", None) or getattr(target, "token_id", "") or "")[:64]


def _name_of(target: Any) -> str:
    if target is None or isinstance(target, str):
        return ""
    return str(getattr(target, "name", "") or getattr(target, "email", "") or "")


def _short(value: Any) -> Any:
    return value[:DETAIL_CHARACTERS] if isinstance(value, str) else value
